//go:build !unix

package config

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: the new file inherits the directory's rights.
func keepOwner(*os.File, fs.FileInfo) {}
