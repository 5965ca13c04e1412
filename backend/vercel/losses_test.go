//go:build linux

package vercel_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/vercel"
	"github.com/elsewhere-sh/elsewhere/driver"
	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
	"github.com/elsewhere-sh/elsewhere/test/cloud/victim"
)

// Here is what must not lose files that the service stores.

const stopping = "POST /v2/sandboxes/sessions/{}/stop"

func (w *world) recordFile() string { return filepath.Join(w.home, "vercel_sandbox_snapshots.json") }

// record is Hermes' record of stored files.
func (w *world) record() map[string]string {
	w.t.Helper()
	text, err := os.ReadFile(w.recordFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	table := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return table
}

// note writes into Hermes' record as Hermes does.
func (w *world) note(task, id string) {
	w.t.Helper()
	table := w.record()
	if table == nil {
		table = map[string]string{}
	}
	table[task] = id
	text, err := json.Marshal(table)
	if err == nil {
		err = os.WriteFile(w.recordFile(), text, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// newest is the id of the account's newest snapshot.
func (w *world) newest() string {
	w.t.Helper()
	ids := w.srv.Snapshots(w.account)
	if len(ids) == 0 {
		w.t.Fatal("nothing is stored")
	}
	return ids[len(ids)-1]
}

func (w *world) closes(sb *elsewhere.Sandbox) {
	w.t.Helper()
	if err := sb.Close(w.ctx()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) keeper() driver.Keeper {
	w.t.Helper()
	keeper, err := vercel.Backend().Keeper(w.t.Context(), request(w.home, w.environ, "", w.settings))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = keeper.Close() })
	return keeper
}

func TestWhatHermesStoresMeanwhileIsKeptAndTold(t *testing.T) {
	w := newWorld(t)
	const hermes = "snap_of_hermes"
	sb := w.open("web")
	w.want(w.session(sb, ""), `:`, "")
	w.note("web", hermes)
	for range 2 {
		w.closes(sb)
		if got := w.record()["web"]; got != hermes {
			t.Fatalf("the record is %q", got)
		}
		sb = w.open("web")
		if r := w.want(w.session(sb, ""), `:`, ""); !strings.Contains(strings.Join(r.Notices, " "), hermes) {
			t.Errorf("it is not told at open: %q", r.Notices)
		}
	}
	w.closes(sb)
	keeper, name := w.keeper(), w.one()
	w.leave("web")
	if err := keeper.Stop(t.Context(), name); err != nil || w.record()["web"] != hermes {
		t.Errorf("stop: %v, %v", err, w.record())
	}
	if _, err := keeper.Remove(t.Context(), name, true); err != nil || w.record()["web"] != hermes {
		t.Errorf("remove: %v, %v", err, w.record())
	}
	if n := len(w.srv.Snapshots(w.account)); n != 0 {
		t.Errorf("%d snapshots of a removed sandbox stay", n)
	}
}

func TestTheRecordFollowsASandboxThatWasMadeFromHermesFiles(t *testing.T) {
	w := newWorld(t)
	sb := w.open("first")
	w.want(w.session(sb, ""), `echo of-hermes > /root/file`, "")
	w.closes(sb)
	hermes := w.newest()
	w.note("web", hermes)
	w.leave("web") // killed before anything is stored
	own := w.ids()[slices.IndexFunc(w.ids(), func(name string) bool { return strings.Contains(name, "web") })]
	w.srv.Lapse(own)
	newest := w.newest()
	sb = w.open("web")
	r := w.want(w.session(sb, ""), `cat /root/file`, "of-hermes\n")
	if w.record()["web"] != newest || newest == hermes {
		t.Errorf("the record is %v, %s is the newest", w.record(), newest)
	}
	if strings.Contains(strings.Join(r.Notices, " "), hermes) {
		t.Errorf("%q", r.Notices)
	}
	w.closes(sb)
	if _, err := w.keeper().Remove(t.Context(), own, true); err != nil || w.record()["web"] != "" || w.record()["first"] != hermes {
		t.Errorf("remove: %v, %v", err, w.record())
	}
}

func TestTheRecordNamesTheFilesThatAreStoredLast(t *testing.T) {
	w := newWorld(t)
	w.closes(w.open("web"))
	name := w.one()
	check := func(what string) {
		t.Helper()
		if got := w.record()["web"]; got != w.newest() {
			t.Errorf("%s: the record is %q, what is stored %v", what, got, w.srv.Snapshots(w.account))
		}
	}
	check("a plain end")

	sb := w.open("web")
	w.srv.Fail(stopping, 1, emulator.Fault{Status: http.StatusGone, After: true})
	w.closes(sb)
	check("a stop whose answer is lost")

	sb = w.open("web")
	w.srv.Lapse(name)
	w.closes(sb)
	check("its time was over before it was closed")

	for range 3 { // more often than states are kept
		w.leave("web")
		w.srv.Lapse(name)
	}
	sb = w.open("web")
	check("its time was over, with nobody there")
	w.closes(sb)

	w.leave("web")
	w.srv.Fail(stopping, 1, emulator.Fault{Status: http.StatusGone, After: true})
	if err := w.keeper().Stop(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	check("a stop by hand whose answer is lost")
}

func TestALongTaskHasItsOwnPlaceInTheRecord(t *testing.T) {
	w := newWorld(t)
	task := strings.Repeat("long-task-", 30)
	keeper := w.keeper()
	w.leave(task)
	list, err := keeper.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Task != task {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := keeper.Stop(t.Context(), list[0].ID); err != nil {
		t.Fatal(err)
	}
	if got := w.record(); len(got) != 1 || got[task] != w.newest() {
		t.Errorf("stop: the record is %v", got)
	}
	if _, err := keeper.Remove(t.Context(), list[0].ID, true); err != nil || len(w.record()) != 0 {
		t.Errorf("remove: %v, the record is %v", err, w.record())
	}
}

func TestFilesThatWereStoredBeforeAreLeftWhenTheLastAreGone(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for _, text := range []string{"one", "two"} {
		sb := w.open("web")
		w.want(w.session(sb, ""), `echo `+text+` > /root/file`, "")
		w.closes(sb)
		ids = append(ids, w.newest())
	}
	w.srv.ExpireSnapshot(w.account, ids[1])
	sb := w.open("web")
	r := w.want(w.session(sb, ""), `cat /root/file`, "one\n")
	if text := strings.Join(r.Notices, " "); !strings.Contains(text, ids[1]) || !strings.Contains(text, "have expired at the service ("+ids[1]+")") || !strings.Contains(text, "stored for the task as "+ids[0]) {
		t.Errorf("%q", r.Notices)
	}
	w.closes(sb)
	if got := w.record()["web"]; got != w.newest() || !slices.Contains(w.srv.Snapshots(w.account), ids[0]) {
		t.Errorf("the record is %q, what is stored %v", got, w.srv.Snapshots(w.account))
	}
}

func TestAHalfMadeSandboxGoesWithoutWhatItStartedFrom(t *testing.T) {
	w := newWorld(t)
	w.closes(w.open("first"))
	hermes := w.newest()
	for _, c := range []struct {
		task, kind string
		slow       time.Duration
	}{
		{"look", "POST /v2/sandboxes/sessions/{}/cmd", 0},
		{"start", "GET /v2/sandboxes/sessions/{}", 2 * time.Second}, // so that it is asked for
	} {
		w.note(c.task, hermes)
		w.srv.SetSlow(c.slow)
		w.srv.Fail(c.kind, 1, emulator.Fault{Status: 403})
		if _, err := w.tryOpen(elsewhere.SandboxOptions{Task: c.task}); err == nil {
			t.Errorf("%s: no error", c.task)
		}
		if got := w.record()[c.task]; got != hermes || !slices.Contains(w.srv.Snapshots(w.account), hermes) {
			t.Errorf("%s: the record is %q, what is stored %v", c.task, got, w.srv.Snapshots(w.account))
		}
	}
	if w.srv.Requests("DELETE /v2/sandboxes/{}") != 2 || strings.Contains(w.srv.Bodies(), "deleteOrphanSnapshots=true") {
		t.Error("what was stored is deleted with a half-made sandbox, or one is left")
	}
}

// swap puts a persistent sandbox in the place of one of the task web, as a process of the same identity on another machine does, whose
// locks are others.
func (w *world) swap(name string) {
	w.t.Helper()
	w.srv.Destroy(name)
	req := request(w.home, w.environ, "web", map[string]string{"container_persistent": "true"})
	req.Identity.Home = w.t.TempDir()
	if _, err := vercel.Backend().Open(w.ctx(), req); err != nil {
		w.t.Error(err)
	}
}

func TestCloseLeavesWhatHasTakenASandboxsPlace(t *testing.T) {
	w := newWorld(t)
	w.settings["container_persistent"] = "false"
	sb := w.open("web")
	name := w.one()
	w.swap(name)
	w.closes(sb)
	if w.srv.State(name) != "running" {
		t.Errorf("the other sandbox is %q", w.srv.State(name))
	}
}

func TestTheReaperLeavesWhatHasTakenAnOrphansPlace(t *testing.T) {
	w := newWorld(t)
	w.settings["container_persistent"] = "false"
	w.leave("web")
	orphan := w.one()
	target, err := url.Parse(w.srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	swapped := false
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
		ModifyResponse: func(r *http.Response) error {
			if strings.HasSuffix(r.Request.URL.Path, "/v2/sandboxes") && !swapped {
				swapped = true
				w.swap(orphan)
			}
			return nil
		},
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	w.settings["vercel_api_url"] = front.URL + target.Path
	gone, err := w.keeper().Reap(t.Context())
	if err != nil || len(gone) != 0 || !swapped || w.srv.State(orphan) != "running" {
		t.Errorf("%v, %v: swapped %t, the sandbox is %q", gone, err, swapped, w.srv.State(orphan))
	}
}

// TestAKillLosesNothingThatWasStored ends a process by KILL before, while and after the service stores the files of its sandbox on close.
func TestAKillLosesNothingThatWasStored(t *testing.T) {
	if _, is := victim.Is(); is {
		w := &world{t: t, home: os.Getenv("HERMES_HOME"), environ: os.Environ()}
		sb := w.open("web")
		w.want(w.session(sb, ""), `echo second > /root/file; : > /root/done`, "")
		_ = sb.Close(w.ctx())
		return
	}
	srv := serve(t)
	for _, c := range []struct {
		name   string
		fault  emulator.Fault
		asked  bool // it is killed when the stop has been asked for
		stored int  // and so many states are stored
	}{
		{"before", emulator.Fault{Hang: true}, false, 1},
		{"a stop that was not taken", emulator.Fault{Hang: true}, true, 1},
		{"stored and not known", emulator.Fault{Hang: true, After: true}, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldOf(t, srv, nil)
			sb := w.open("web")
			w.want(w.session(sb, ""), `echo first > /root/file`, "")
			w.closes(sb)
			name := w.one()
			srv.Fail(stopping, 1, c.fault)
			before := srv.Requests(stopping)
			victim.Kill(t, w.environ, "", func() bool {
				if c.asked {
					return srv.Requests(stopping) > before && len(srv.Snapshots(w.account)) == c.stored
				}
				return srv.State(name) == "running" && w.see(name, `[ -e /root/done ] && echo yes`) == "yes\n"
			})
			srv.Heal()
			if _, life := srv.Size(name); life == 0 || life > 30*time.Minute {
				t.Errorf("it runs for %v", life)
			}
			srv.Lapse(name) // as it is when its time is over
			sb = w.open("web")
			w.want(w.session(sb, ""), `cat /root/file`, "second\n")
			w.await("the record names what was stored last", func() bool { return w.record()["web"] == w.newest() })
			w.closes(sb)
			if got := w.record()["web"]; got != w.newest() {
				t.Errorf("the record is %q", got)
			}
		})
	}
}
