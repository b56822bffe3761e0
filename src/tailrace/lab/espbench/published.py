"""What was published of other systems, on other machines: for orders of magnitude, and to see the same shapes again.

Three servers of eight cores for the system, three for Kafka, one for PostgreSQL; Flink 1.8, Hazelcast Jet 3.0 and Spark
Streaming 2.4, by Apache Beam.
"""

from __future__ import annotations

Row = tuple[float, float, float, float]

TABLE_7: dict[tuple[str, int], dict[str, Row]] = {
    ("q1", 1_000): {"Flink": (10_659, 49, 18_591, 4_269), "Jet": (24, 9, 691, 20)},
    ("q1", 10_000): {"Flink": (16_492, 48, 33_423, 5_767), "Jet": (36, 12, 1_030, 29)},
    ("q2", 1_000): {"Flink": (615_078, 9_352, 676_535, 358_076), "Jet": (533_177, 5_353, 590_170, 304_689)},
    ("q2", 10_000): {
        "Flink": (8_175_784, 40_446, 9_147_738, 4_599_666),
        "Jet": (7_425_443, 24_564, 8_282_022, 4_140_149),
    },
    ("q3", 1_000): {"Flink": (11, 1, 45, 5), "Jet": (21, 4, 158, 17), "Spark": (534, 121, 1_248, 387)},
    ("q3", 10_000): {"Flink": (14_979, 2, 19_058, 4_581), "Jet": (16, 5, 795, 14), "Spark": (1_557, 137, 5_380, 780)},
    ("q4", 1_000): {"Flink": (717, 3, 2_792, 251), "Jet": (371, 6, 4_082, 195), "Spark": (1_008, 141, 1_966, 644)},
    ("q4", 10_000): {
        "Flink": (470_689, 1_936, 517_291, 275_096),
        "Jet": (87_299, 6_008, 94_599, 56_236),
        "Spark": (303_432, 4_255, 325_951, 188_158),
    },
    ("q5", 1_000): {
        "Flink": (106_892, 506, 114_750, 65_261),
        "Jet": (88_006, 1_823, 96_316, 51_278),
        "Spark": (102_736, 803, 112_815, 61_820),
    },
    ("q5", 10_000): {
        "Flink": (2_028_137, 2_274, 2_211_899, 1_136_910),
        "Jet": (2_129_287, 6_202, 2_345_790, 1_170_944),
        "Spark": (1_863_259, 1_941, 2_061_002, 1_041_930),
    },
}
"""By query and messages a second: 90th percentile, least, most and mean, in ms, from samples of 1,028 results."""

EXACT: dict[tuple[str, int], dict[str, tuple[float, float, float]]] = {
    ("q1", 1_000): {"Flink": (2_812, 10_705, 17_812), "Jet": (13, 24, 91)},
    ("q1", 10_000): {"Flink": (2_448, 18_230, 30_230), "Jet": (19, 35, 173)},
    ("q3", 1_000): {"Flink": (3, 9, 39), "Jet": (11, 22, 150), "Spark": (389, 530, 758)},
    ("q3", 10_000): {"Flink": (152, 17_057, 21_004), "Jet": (9, 16, 42), "Spark": (412, 671, 971)},
    ("q4", 1_000): {"Flink": (80, 887, 2_543), "Jet": (68, 403, 3_553), "Spark": (598, 1_032, 1_538)},
}
"""Where nothing queued: median, 90th and 99th percentile of all published results, median of three runs."""

MOST_LOAD: dict[tuple[str, int], dict[str, float]] = {
    ("q1", 1_000): {"Flink": 1.1, "Jet": 6.0},
    ("q3", 10_000): {"Flink": 1.7, "Jet": 5.5, "Spark": 2.3},
    ("q4", 1_000): {"Flink": 1.3, "Jet": 6.7, "Spark": 3.3},
}
"""The highest one-minute load of one of their servers, as in Figure 6."""

CAPACITY: dict[str, tuple[str, float, float]] = {
    "q2": ("windows", 1 / 500, 0.70),
    "q4": ("lookups", 0.176, 1_340),
    "q5": ("updates", 1, 804),
}
"""The best published, in units of work a second, and how many units a message a second and stream makes: query 4 looks
8.8 % of both machines' records up."""
