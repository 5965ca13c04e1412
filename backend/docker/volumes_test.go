package docker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestVolumesAreReadAsDockerReadsThem(t *testing.T) {
	for text, want := range map[string]string{
		"/a:/b":                       "/a:/b",
		" /a/../c/:/b/ ":              "/c:/b",
		"/a:/b:ro":                    "/a:/b:ro",
		"/a:/b:ro,z,rshared":          "/a:/b:ro,z,rshared",
		"/a:/b:Z":                     "/a:/b:Z",
		"name:/b":                     "name:/b",
		"my.vol_1-x:/b:nocopy":        "my.vol_1-x:/b:nocopy",
		"~:/b":                        "/home/me:/b",
		"~/x y:/b":                    "/home/me/x y:/b",
		`C:\Users\me\p:/b`:            `C:\Users\me\p:/b`,
		`D:/proj:/b:ro`:               `D:/proj:/b:ro`,
		`\\server\share:/b`:           `\\server\share:/b`,
		"/var/run/docker.sock:/s":     "/var/run/docker.sock:/s",
		"/a:/with space/and=signs,ok": "/a:/with space/and=signs,ok",
	} {
		v, err := parseVolume(text, "/home/me")
		if err != nil || v.bind() != want {
			t.Errorf("%q: %q %v, want %q", text, v.bind(), err, want)
		}
	}
	for text, says := range map[string]string{
		"/a": "no colon", "": "no colon", ":/b": "source is empty", "./a:/b": "relative", "a/b:/c": "relative", ".:/b": "relative", `a\b:/c`: "relative",
		"x:/b": "Windows drive", "-x:/b": "name of a volume", "/a:b": "not an absolute path", "/a:": "not an absolute path", "/a:/": "may not be /", "/a:/x/..": "may not be /",
		"/a:/b:ro:x": "too many colons", "/a:/b:exec": "option \"exec\" is unknown", "/a:/b:ro,rw": "exclude", "/a:/b:": "option \"\" is unknown",
		"~me/x:/b": "relative", "/a:C:/b": "not an absolute path", "/a\x00:/b": "null byte", `C:\x`: "Windows drive",
	} {
		if v, err := parseVolume(text, "/home/me"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v %v, want %q", text, v, err, says)
		}
	}
	if _, err := parseVolume("~/x:/b", ""); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("~ without a home: %v", err)
	}
}

func FuzzVolume(f *testing.F) {
	for _, seed := range []string{"/a:/b:ro", `C:\x:/y`, "~/:/x", ":::", "v:/b:z,Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseVolume(text, "/home/me")
		if err != nil {
			return
		}
		again, err := parseVolume(v.bind(), "/home/me")
		if err != nil || again.bind() != v.bind() || v.target == "/" || v.target[0] != '/' {
			t.Errorf("%q is %+v, which is read back as %+v (%v)", text, v, again, err)
		}
	})
}

func TestAVolumeThatCannotBeIsNamedWithItsPlace(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ volumes, args, want string }{
		{dir + ":/a,nocolon", "", `docker_volumes entry 2, "nocolon" (`},
		{filepath.Join(dir, "missing") + ":/a", "", "does not exist on this machine"},
		{dir + ":/a,vol:/a/", "", "mounted already by docker_volumes entry 1"},
		{dir + ":/a", "-v,vol:/a", "mounted already by docker_volumes entry 1"},
		{dir + ":/a", "--mount,type=tmpfs,target=/a", "mounted already by docker_volumes entry 1"},
		{dir + ":/a", "--tmpfs,/a", "mounted already by docker_volumes entry 1"},
		{dir + ":/run/elsewhere", "", "elsewhere's own directory"},
		{dir + ":/run/elsewhere/x", "", "elsewhere's own directory"},
		{dir + ":/proc", "", "nothing can be mounted on /proc, which is the kernel's own in every container; choose another target"},
		{dir + ":/proc/sys", "", "nothing can be mounted on /proc/sys"},
		{dir + ":/sys", "", "nothing can be mounted on /sys"},
		{dir + ":/dev", "", "nothing can be mounted on /dev"},
		{dir + ":/", "", "may not be /, which is the image's; choose"},
		{dir + "/\xff:/a", "", "no path that is not UTF-8"},
		{`[""]`, "", `docker_volumes entry 1, "" (`},
		{`["` + dir + `:/a", " "]`, "", `docker_volumes entry 2, " " (`},
		{"", "--mount,type=bind,src=" + filepath.Join(dir, "missing") + ",dst=/x", "does not exist on this machine"},
	} {
		set := settings{}
		if c.volumes != "" {
			set["docker_volumes"] = c.volumes
		}
		if c.args != "" {
			set["docker_extra_args"] = c.args
		}
		if strings.Contains(c.args, "type=") {
			set["docker_extra_args"] = `["--mount", "` + strings.TrimPrefix(c.args, "--mount,") + `"]`
		}
		_, err := planned(t, opening(t, set), anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
		wantKind(t, err, driver.KindConfig, c.want)
	}
	_, err := planned(t, opening(t, settings{"sandbox_dir": dir + "/\xff"}), anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
	wantKind(t, err, driver.KindConfig, `\xff/docker/default/home" cannot be mounted on "/root"`, "not UTF-8", "terminal.sandbox_dir")
}

func TestWhatTheUserMountsReplacesWhatIsOurs(t *testing.T) {
	dir := t.TempDir()
	req := opening(t, settings{"docker_volumes": dir + ":/workspace," + dir + ":/root/.hermes/skills:ro,big:/tmp," + dir + ":/workspace/sub"})
	if err := os.MkdirAll(filepath.Join(req.Identity.Home, "skills"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := mustPlan(t, req)
	for _, target := range []string{"/workspace", "/root/.hermes/skills"} {
		if m, ok := b.p.mountOn(target); ok {
			t.Errorf("%s is mounted twice: %+v", target, m)
		}
	}
	if _, ok := b.p.host.Tmpfs["/tmp"]; ok || len(b.p.dataDirs) != 1 || len(b.p.host.Binds) != 4 {
		t.Errorf("%v %q %q", b.p.host.Tmpfs, b.p.dataDirs, b.p.host.Binds)
	}
}

func TestTheEnginesSocketIsMountedAndToldOf(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "docker.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "innocent")
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	b := mustPlan(t, opening(t, settings{"docker_volumes": link + ":/s"}))
	if !b.p.told("engine's socket") || !strings.HasPrefix(b.p.featureState("isolation"), "degraded the engine's socket") || !slices.Contains(b.p.host.Binds, link+":/s") {
		t.Errorf("%q %s", b.p.notices, b.p.featureState("isolation"))
	}
}
