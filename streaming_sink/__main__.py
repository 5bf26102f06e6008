"""`python -m streaming_sink`: the program `streaming-sink`, see `streaming_sink.commands.cli`."""

import sys

from streaming_sink.commands.cli import main

sys.exit(main(program="python -m streaming_sink"))
