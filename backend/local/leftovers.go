package local

import (
	"log/slog"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// removeLeftovers removes the private directories of owners that are dead.
func removeLeftovers(driver.Identity, *slog.Logger) {}
