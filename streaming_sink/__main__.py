"""`python -m streaming_sink`: see `streaming_sink.commands.cli`."""

import sys

from streaming_sink.commands.cli import main

sys.exit(main())
