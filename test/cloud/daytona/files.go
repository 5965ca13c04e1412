//go:build linux

package daytona

import (
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path"
	"strings"
	"time"
)

// inside gives the machine's files, and a path in them that a request named.
func (b *sandbox) inside(name string) (*os.Root, string, error) {
	if !path.IsAbs(name) {
		name = path.Join(workDir, name)
	}
	root, err := os.OpenRoot(b.machine.Root())
	return root, strings.TrimPrefix(path.Clean(name), "/"), err
}

func (b *sandbox) writeFile(name string, r io.Reader) (int64, error) {
	root, file, err := b.inside(name)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return 0, err
	}
	f, err := root.Create(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(f, r)
}

func (s *Server) fileRoutes(mux *http.ServeMux) {
	on := s.onToolbox(mux)
	on("POST /toolbox/{ref}/files/bulk-upload", bulkUpload)
	on("POST /toolbox/{ref}/files/bulk-download", bulkDownload)
	on("POST /toolbox/{ref}/files/upload-v2", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		part, _, err := r.FormFile("file")
		if err == nil {
			_, err = b.writeFile(r.URL.Query().Get("path"), part)
		}
		if err != nil {
			fail(w, r, http.StatusBadRequest, err.Error())
			return
		}
		answer(w, 200, nil)
	})
	on("GET /toolbox/{ref}/files/download", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		root, file, err := b.inside(r.URL.Query().Get("path"))
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
		fail(w, r, http.StatusNotFound, "file not found", "FILE_NOT_FOUND")
	})
	on("GET /toolbox/{ref}/files", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		root, dir, err := b.inside(r.URL.Query().Get("path"))
		list := []any{}
		if err == nil {
			defer root.Close()
			var f *os.File
			if f, err = root.Open(dir); err == nil {
				defer f.Close()
				entries, _ := f.Readdir(-1)
				for _, e := range entries {
					list = append(list, fileInfo(e))
				}
			}
		}
		if err != nil {
			fail(w, r, http.StatusNotFound, "directory not found")
			return
		}
		answer(w, 200, list)
	})
	on("GET /toolbox/{ref}/files/info", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		root, file, err := b.inside(r.URL.Query().Get("path"))
		if err == nil {
			defer root.Close()
			var info os.FileInfo
			if info, err = root.Stat(file); err == nil {
				answer(w, 200, fileInfo(info))
				return
			}
		}
		fail(w, r, http.StatusNotFound, "file not found")
	})
	on("POST /toolbox/{ref}/files/folder", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		root, dir, err := b.inside(r.URL.Query().Get("path"))
		if err == nil {
			defer root.Close()
			err = root.MkdirAll(dir, 0o755)
		}
		if err != nil {
			fail(w, r, http.StatusBadRequest, err.Error())
			return
		}
		answer(w, http.StatusCreated, nil)
	})
	on("DELETE /toolbox/{ref}/files", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		root, file, err := b.inside(r.URL.Query().Get("path"))
		if err == nil {
			defer root.Close()
			if r.URL.Query().Get("recursive") == "true" {
				err = root.RemoveAll(file)
			} else {
				err = root.Remove(file)
			}
		}
		if err != nil {
			fail(w, r, http.StatusBadRequest, err.Error())
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func fileInfo(info os.FileInfo) map[string]any {
	return map[string]any{
		"name": info.Name(), "size": info.Size(), "isDir": info.IsDir(), "mode": info.Mode().String(), "permissions": fmt.Sprintf("%04o", info.Mode().Perm()),
		"modTime": info.ModTime().UTC().Format(time.RFC3339), "modifiedAt": info.ModTime().UTC().Format(time.RFC3339), "owner": "root", "group": "root",
	}
}

// bulkUpload takes pairs of parts: files[N].path, then files[N].file.
func bulkUpload(w http.ResponseWriter, r *http.Request, b *sandbox) {
	parts, err := r.MultipartReader()
	if err != nil {
		fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	paths := map[string]string{}
	done, wrong := []any{}, []string{}
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			fail(w, r, http.StatusBadRequest, err.Error())
			return
		}
		name := part.FormName()
		switch {
		case strings.HasSuffix(name, ".path"):
			text, _ := io.ReadAll(part)
			paths[strings.TrimSuffix(name, ".path")] = string(text)
		case strings.HasSuffix(name, ".file"):
			target := paths[strings.TrimSuffix(name, ".file")]
			n, err := b.writeFile(target, part)
			if err != nil {
				wrong = append(wrong, err.Error())
			} else {
				done = append(done, map[string]any{"path": target, "bytes": n})
			}
		}
	}
	if len(wrong) > 0 {
		answer(w, http.StatusBadRequest, map[string]any{"errors": wrong, "files": done})
		return
	}
	answer(w, 200, map[string]any{"files": done})
}

func bulkDownload(w http.ResponseWriter, r *http.Request, b *sandbox) {
	var q struct{ Paths []string }
	if json.NewDecoder(r.Body).Decode(&q) != nil || len(q.Paths) == 0 {
		fail(w, r, http.StatusBadRequest, "paths are required")
		return
	}
	form := multipart.NewWriter(w)
	w.Header().Set("Content-Type", form.FormDataContentType())
	for _, name := range q.Paths {
		header := textproto.MIMEHeader{}
		kind, text := "file", []byte(nil)
		root, file, err := b.inside(name)
		if err == nil {
			text, err = root.ReadFile(file)
			_ = root.Close()
		}
		header.Set("Content-Type", "application/octet-stream")
		if err != nil {
			kind = "error"
			text, _ = json.Marshal(map[string]any{"statusCode": 404, "message": "file not found", "code": "FILE_NOT_FOUND", "source": "DAYTONA_DAEMON"})
			header.Set("Content-Type", "application/json")
		}
		header.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, kind, name))
		header.Set("Content-Length", fmt.Sprint(len(text)))
		part, err := form.CreatePart(header)
		if err != nil {
			return
		}
		_, _ = part.Write(text)
	}
	_ = form.Close()
}
