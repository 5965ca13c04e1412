package docker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// account is the user that commands in the container run as.
type account struct {
	UID, GID int    // -1: not known
	Home     string // "" where the image does not know the user
}

func (a account) root() bool { return a.UID == 0 }

// passwdTimeout bounds looking into an image.
const passwdTimeout = 30 * time.Second

// maxPasswd is how much of a passwd file is read.
const maxPasswd = 1 << 20

// findAccount finds user ("", NAME, UID, NAME:GROUP, UID:GID, as in an image's settings) in the image. For root nothing has to
// be asked. Any other user is looked up in the image's /etc/passwd, which takes a container that is made and never started;
// what was found is remembered below home (HERMES_HOME) by the image's id.
func findAccount(ctx context.Context, eng *client.Client, image *client.ImageInspectResult, user, home string) (account, error) {
	name, group, _ := strings.Cut(user, ":")
	if name == "" || name == "root" || name == "0" {
		return account{UID: 0, GID: max(number(group), 0), Home: "/root"}, nil
	}
	passwd, err := imagePasswd(ctx, eng, image.ID, home)
	if err != nil {
		return account{}, err
	}
	return lookUp(passwd, name, group), nil
}

func number(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n
	}
	return -1
}

// lookUp finds a user by name or uid in the text of a passwd file.
func lookUp(passwd, name, group string) account {
	found := account{UID: number(name), GID: number(group)}
	for line := range strings.Lines(passwd) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 6 || fields[0] != name && (number(name) < 0 || fields[2] != name) {
			continue
		}
		found.UID = number(fields[2])
		if group == "" {
			found.GID = number(fields[3])
		}
		if path.IsAbs(fields[5]) && path.Clean(fields[5]) != "/" {
			found.Home = path.Clean(fields[5])
		}
		return found
	}
	if found.UID >= 0 && group == "" {
		found.GID = 0 // what an engine takes then
	}
	return found
}

// imagePasswd gives the text of the image's /etc/passwd; "" where it has none.
func imagePasswd(ctx context.Context, eng *client.Client, id, home string) (string, error) {
	file := ""
	if home != "" {
		file = filepath.Join(home, "elsewhere", "images", strings.TrimPrefix(id, "sha256:")+".json")
		var kept string
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &kept) == nil {
			return kept, nil
		}
	}
	text, err := readPasswd(ctx, eng, id, owner.Tag(home))
	if err != nil || file == "" {
		return text, err
	}
	// Remembering is a saving, no more: without it the image is asked again.
	if data, err := json.Marshal(text); err == nil && os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		_ = atomicfile.Write(file, data, 0o600)
	}
	return text, nil
}

// lookAgent marks a container that was made to look into an image.
const lookAgent = "elsewhere-look"

func readPasswd(ctx context.Context, eng *client.Client, id, leases string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, passwdTimeout)
	defer cancel()
	made, err := eng.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   lookAgent + "-" + owner.NewID(),
		Config: &container.Config{Image: id, Entrypoint: []string{"/"}, Labels: map[string]string{labelAgent: lookAgent, labelLeases: leases}},
		HostConfig: &container.HostConfig{
			NetworkMode: "none",
		},
	})
	if err != nil {
		return "", fmt.Errorf("looking for the image's users: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), passwdTimeout)
		defer cancel()
		_, gone := eng.ContainerRemove(ctx, made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if gone != nil && !errdefs.IsNotFound(gone) {
			err = errors.Join(err, fmt.Errorf("removing container %.12s, which was made to look into the image: %w", made.ID, gone))
		}
	}()
	from, err := eng.CopyFromContainer(ctx, made.ID, client.CopyFromContainerOptions{SourcePath: "/etc/passwd"})
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading /etc/passwd of the image: %w", err)
	}
	defer from.Content.Close()
	return untar(from.Content)
}

// untar gives the content of the one regular file of an archive; "" where it holds none (a link, say).
func untar(r io.Reader) (string, error) {
	files := tar.NewReader(r)
	header, err := files.Next()
	if err == io.EOF {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if fs.FileMode(header.Mode).Type() != 0 || header.Typeflag != tar.TypeReg {
		return "", nil
	}
	data, err := io.ReadAll(io.LimitReader(files, maxPasswd))
	return string(data), err
}
