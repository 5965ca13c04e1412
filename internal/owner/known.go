package owner

import "os"

// Known tells whether there is a lease of this id, held or not. What an owner left whose lease is gone belongs to nobody.
func Known(home, id string) bool {
	for _, dir := range places(home) {
		if _, err := os.Lstat(leaseFile(dir, id)); err == nil {
			return true
		}
	}
	return false
}
