"""The former place of `statecheck.sanitizer`. Scripts in reports of earlier versions look for this file in a checkout."""

from statecheck.former_modules import import_in_place_of

import_in_place_of(__name__)
