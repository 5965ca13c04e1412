package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
)

// record is what a home remembers of a task's container when the engine knows nothing of it any more: that there was one, and
// where its files are. It is read and written by whoever has the right to make the container.
type record struct {
	Name     string `json:"name"`
	Task     []byte `json:"task"` // any bytes
	Identity string `json:"identity"`
	Profile  string `json:"profile"`
	// ID is that of the container; "" once elsewhere has removed it.
	ID         string    `json:"id"`
	Image      string    `json:"image"`
	Created    time.Time `json:"created"`
	Persistent bool      `json:"persistent"`
	Started    string    `json:"started,omitempty"` // when it was started, as the engine says it, when it was entered last
	Data       []string  `json:"data"`              // directories of this machine that hold its files
	Volumes    []string  `json:"volumes"`           // volumes of the engine that do
}

// records are those of one home about the containers of one engine.
type records struct {
	dir    string // "" where there is no home: then nothing is remembered
	engine string // a part of the files' names
	eng    *engine
}

// recordsOf gives the records of a home. An engine on this machine is another one than that at the same address elsewhere.
func recordsOf(eng *engine, id driver.Identity) records {
	if id.Home == "" {
		return records{}
	}
	sum := sha256.Sum256([]byte(eng.at.host + "\x00" + eng.host))
	return records{dir: filepath.Join(id.Home, "elsewhere", "docker"), engine: "." + hex.EncodeToString(sum[:4]) + ".json", eng: eng}
}

func (r records) file(name string) string { return filepath.Join(r.dir, name+r.engine) }

// read gives the record of a container; nil where there is none or it cannot be understood.
func (r records) read(name string) *record {
	if r.dir == "" {
		return nil
	}
	text, err := os.ReadFile(r.file(name))
	if err != nil {
		return nil
	}
	var rec record
	if json.Unmarshal(text, &rec) != nil || rec.Name != name {
		return nil
	}
	return &rec
}

// all gives the records of an identity and profile.
func (r records) all(id driver.Identity) []*record {
	if r.dir == "" {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(r.dir, "*"+r.engine))
	var found []*record
	for _, file := range files {
		rec := r.read(strings.TrimSuffix(filepath.Base(file), r.engine))
		if rec != nil && rec.Identity == id.ID && rec.Profile == id.Profile {
			found = append(found, rec)
		}
	}
	return found
}

func (r records) write(rec *record) error {
	if r.dir == "" {
		return nil
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(r.file(rec.Name), append(text, '\n'), 0o600)
}

// forget notes that elsewhere has removed the container. What nobody wrote to goes now; where files are left the record stays,
// and by it they are found.
func (r records) forget(ctx context.Context, name string) error {
	rec := r.read(name)
	if rec == nil {
		return nil
	}
	r.removeEmpty(ctx, rec.Data)
	if len(r.left(ctx, rec)) == 0 {
		return r.drop(name)
	}
	rec.ID = ""
	return r.write(rec)
}

func (r records) drop(name string) error {
	if r.dir == "" {
		return nil
	}
	if err := os.Remove(r.file(name)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// left are the directories and volumes of a record that are there, for people.
func (r records) left(ctx context.Context, rec *record) []string {
	var left []string
	for _, dir := range rec.Data {
		if isDir(dir) {
			left = append(left, dir)
		}
	}
	for _, name := range rec.Volumes {
		if _, err := r.eng.VolumeInspect(ctx, name, client.VolumeInspectOptions{}); !cerrdefs.IsNotFound(err) {
			left = append(left, volumeText(name))
		}
	}
	return left
}

func volumeText(name string) string { return "the volume " + name + " of the engine" }

// removeEmpty removes data directories that hold nothing, and the task's directory with the last. Hermes has the same ones, so
// one that any container mounts stays; so does what a link of the user's leads to.
func (r records) removeEmpty(ctx context.Context, dirs []string) {
	for _, dir := range dirs {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 && linkOf(dir) == "" && !r.mounted(ctx, dir) {
			_ = os.Remove(dir)
		}
	}
	removeParents(dirs)
}

// removeParents removes the directories of a task whose data directories are gone, where nothing else is in them.
func removeParents(dirs []string) {
	for _, dir := range dirs {
		parent := filepath.Dir(dir)
		if info, err := os.Lstat(parent); err == nil && info.IsDir() { // a link would go although it leads to files
			_ = os.Remove(parent)
		}
	}
}

// linkOf gives the link by which the user has put a data directory somewhere else: in its place, or in that of its task's
// directory. What is above is the place where all files are kept, which may be reached by links. "" is none.
func linkOf(dir string) string {
	for _, name := range []string{filepath.Dir(dir), dir} {
		if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return name
		}
	}
	return ""
}

// mounted tells whether a container has mounted the directory; also where that cannot be told.
func (r records) mounted(ctx context.Context, dir string) bool {
	list, err := r.eng.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return true
	}
	for _, c := range list.Items {
		for _, m := range c.Mounts {
			if m.Type == "bind" && (m.Source == "" || below(dir, m.Source) || below(m.Source, dir)) {
				return true
			}
		}
	}
	return false
}

// remember notes, with the right to make, which container the task has now. It says why that is another one than the home
// remembers, or "".
func (s *sandbox) remember(was *record) (recreated string, err error) {
	rec := &record{
		Name: s.plan.name, Task: []byte(s.req.Task), Identity: s.req.Identity.ID, Profile: s.req.Identity.Profile, ID: s.id,
		Image: s.plan.config.Image, Created: time.Now(), Persistent: s.plan.process, Started: s.since, Data: s.plan.dataDirs, Volumes: s.plan.volumes,
	}
	if was != nil {
		same := was.ID == rec.ID
		if same && was.Started == rec.Started && slices.Equal(was.Data, rec.Data) {
			return "", nil
		}
		if same {
			rec.Created = was.Created
		}
		if same && !s.fresh && was.Started != "" && was.Started != rec.Started {
			s.say("the container has been stopped and started again, and not by elsewhere: " + lostByRestart)
		}
		if was.ID != "" && !same && !s.replaced {
			recreated = "the container " + s.plan.name + " that this task had was removed, and not by elsewhere: what ran in it and its sessions' variables are gone; "
			if s.plan.data {
				recreated += "of its files those in the home directory and " + workspace + " are kept"
			} else {
				recreated += "so are its files"
			}
		}
	}
	return recreated, recordsOf(s.eng, s.req.Identity).write(rec)
}
