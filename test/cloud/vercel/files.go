//go:build linux

package vercel

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
)

// inside gives a session's files, and a path in them that a request named.
func (x *session) inside(cwd, name string) (*os.Root, string, error) {
	if cwd == "" {
		cwd = workDir
	}
	if !path.IsAbs(name) {
		name = path.Join(cwd, name)
	}
	root, err := os.OpenRoot(x.machine.Root())
	file := strings.TrimPrefix(path.Clean(name), "/")
	if file == "" {
		file = "."
	}
	return root, file, err
}

// extract puts an archive's files into a directory.
func (x *session) extract(dir string, from io.Reader) error {
	packed, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	entries := tar.NewReader(packed)
	for {
		h, err := entries.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		root, file, err := x.inside(dir, strings.TrimLeft(h.Name, "/"))
		if err == nil {
			err = extractOne(root, file, h, entries)
			_ = root.Close()
		}
		if err != nil {
			return err
		}
	}
}

func extractOne(root *os.Root, file string, h *tar.Header, data io.Reader) error {
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(file, mode|0o700)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%s is no plain file", h.Name)
	}
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

func (s *Server) fileRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/v2/sandboxes/sessions/{id}/fs/write", s.onSession(true, func(w http.ResponseWriter, r *http.Request, x *session) {
		if r.Header.Get("Content-Type") != "application/gzip" {
			fail(w, http.StatusBadRequest, "bad_request", "Expected application/gzip")
			return
		}
		if err := x.extract(r.Header.Get("x-cwd"), r.Body); err != nil {
			fail(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
		answer(w, 200, map[string]any{})
	}))
	type named struct{ Path, Cwd string }
	mux.HandleFunc("POST /api/v2/sandboxes/sessions/{id}/fs/read", s.onSession(true, func(w http.ResponseWriter, r *http.Request, x *session) {
		var q named
		_ = json.NewDecoder(r.Body).Decode(&q)
		root, file, err := x.inside(q.Cwd, q.Path)
		if err == nil {
			defer root.Close()
			var f *os.File
			if f, err = root.Open(file); err == nil {
				defer f.Close()
				w.Header().Set("Content-Type", "application/octet-stream")
				_, _ = io.Copy(w, f)
				return
			}
		}
		fail(w, http.StatusNotFound, "not_found", "File not found")
	}))
	mux.HandleFunc("POST /api/v2/sandboxes/sessions/{id}/fs/mkdir", s.onSession(true, func(w http.ResponseWriter, r *http.Request, x *session) {
		var q named
		_ = json.NewDecoder(r.Body).Decode(&q)
		root, file, err := x.inside(q.Cwd, q.Path)
		if err == nil {
			defer root.Close()
			err = root.Mkdir(file, 0o755)
		}
		if err != nil {
			fail(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
		answer(w, 200, map[string]any{})
	}))
}
