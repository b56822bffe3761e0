"""Division of 128-bit decimals, as Spark rounds it."""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import kernel


@kernel
def divide_decimals(sums, counts, present, more_digits, out, fits):
    """sum * 10^more_digits / count, rounded half up, in 192 bits; ``fits`` where 127 bits hold the quotient."""
    for i in range(sums.shape[0]):
        if not present[i]:
            continue
        low, high = np.uint64(sums[i, 0]), np.uint64(sums[i, 1])
        negative = sums[i, 1] < 0
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
        top = np.uint64(0)
        for _ in range(more_digits):
            # times ten = times eight plus times two, over three limbs
            top8 = top << np.uint64(3) | high >> np.uint64(61)
            high8 = high << np.uint64(3) | low >> np.uint64(61)
            low8 = low << np.uint64(3)
            top2 = top << np.uint64(1) | high >> np.uint64(63)
            high2 = high << np.uint64(1) | low >> np.uint64(63)
            low2 = low << np.uint64(1)
            low = low8 + low2
            carry = np.uint64(1) if low < low8 else np.uint64(0)
            high = high8 + high2
            carry2 = np.uint64(1) if high < high8 else np.uint64(0)
            high += carry
            if high < carry:
                carry2 += np.uint64(1)
            top = top8 + top2 + carry2
        divisor = np.uint64(counts[i])
        remainder = np.uint64(0)
        q_top, q_high, q_low = np.uint64(0), np.uint64(0), np.uint64(0)
        for bit in range(191, -1, -1):
            limb = top if bit >= 128 else (high if bit >= 64 else low)
            remainder = remainder << np.uint64(1) | (limb >> np.uint64(bit & 63) & np.uint64(1))
            q_top = q_top << np.uint64(1) | q_high >> np.uint64(63)
            q_high = q_high << np.uint64(1) | q_low >> np.uint64(63)
            q_low = q_low << np.uint64(1)
            if remainder >= divisor:
                remainder -= divisor
                q_low |= np.uint64(1)
        if remainder >= divisor - remainder:
            q_low += np.uint64(1)
            if q_low == 0:
                q_high += np.uint64(1)
        fits[i] = q_top == 0 and q_high < np.uint64(0x4B3B4CA85A86C47A)
        if negative:
            q_low = ~q_low + np.uint64(1)
            q_high = ~q_high + (np.uint64(1) if q_low == 0 else np.uint64(0))
        out[i, 0] = np.int64(q_low)
        out[i, 1] = np.int64(q_high)
