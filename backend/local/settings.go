package local

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the backend's rows of the settings table.
var Settings []driver.Setting
