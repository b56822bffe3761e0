"""Kernels between columns and byte strings of nested values. A place below 0 is of what is not there."""

from __future__ import annotations

from tailrace.env.kernels.compile import copy_block, kernel


@kernel
def put_fixed(data, at, values):
    for i in range(at.shape[0]):
        if at[i] >= 0:
            for b in range(values.shape[1]):
                data[at[i] + b] = values[i, b]


@kernel
def get_fixed(data, at, values):
    for i in range(at.shape[0]):
        if at[i] >= 0:
            for b in range(values.shape[1]):
                values[i, b] = data[at[i] + b]


@kernel
def put_bytes(data, at, offsets, source):
    for i in range(at.shape[0]):
        if at[i] >= 0:
            copy_block(source, offsets[i], data, at[i], offsets[i + 1] - offsets[i])


@kernel
def get_bytes(data, at, offsets, out):
    for i in range(at.shape[0]):
        if at[i] >= 0:
            copy_block(data, at[i], out, offsets[i], offsets[i + 1] - offsets[i])
