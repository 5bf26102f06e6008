"""`python -m streaming_sink`: see `streaming_sink.cli`."""

import sys

from streaming_sink.cli import main

sys.exit(main())
