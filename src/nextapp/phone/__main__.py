import sys

from nextapp.phone.commands import main

sys.exit(main())
