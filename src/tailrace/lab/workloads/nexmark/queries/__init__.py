"""NEXMark's queries as engines run them, one file for each family; ``registry`` knows them by name.

Every function takes the stream of wide events and ``Params`` and gives a stream with the columns of
``answers.ANSWERS``. Functions that end in ``_spark`` use nothing but Spark's own operators, at their best.
"""
