import sys

from mainstem.cli.main import main

sys.exit(main())
