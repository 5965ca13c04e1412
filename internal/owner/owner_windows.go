package owner

// The temp directory is the user's own.
func userID() string { return "me" }

func ownDir(string) error { return nil }
