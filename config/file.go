package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// mostBytes bounds a settings file: one that is larger is no settings file.
const mostBytes = 4 << 20

// readFile reads a settings file. One that is not there is nil. shown names it in errors.
func readFile(name, shown string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, unreadable(shown, err)
	case info.IsDir():
		return nil, nil, fileError(shown, "this is a directory, not a file", "move it away", nil)
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return nil, nil, fileError(shown, "this is a pipe or socket, not a file", "move it away", nil)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, unreadable(shown, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, nil, unreadable(shown, err)
	}
	if len(data) > mostBytes {
		return nil, nil, fileError(shown, "the file is larger than 4 MiB", "make it smaller", nil)
	}
	return data, info, nil
}

// unreadable says that a file that may be there cannot be read. Going on without it could choose another backend.
func unreadable(shown string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fileError(shown, "the file cannot be read", "make it readable for you, or choose another HERMES_HOME", err)
}
