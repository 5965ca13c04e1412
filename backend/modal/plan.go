package modal

import (
	"fmt"
	"math"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
	"github.com/elsewhere-sh/elsewhere/internal/hostpath"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
)

// plan is what is asked of the service.
type plan struct {
	name       string // of the sandbox; "" where nobody else may find it
	key        string // of its files in the store
	image      string
	params     sdk.SandboxCreateParams
	lifetime   time.Duration
	idle       time.Duration // 0 is none
	ttl        time.Duration // of a snapshot
	persistent bool
	keep       bool // it is left running on close
	settings   kept.Settings
	dir        string // where a session starts; "" is the home directory
	callEnv    map[string]string
	features   []driver.Feature
	notices    []string
}

// The tags of our sandboxes. Hermes writes none.
const (
	tagAgent       = "hermes-agent"
	tagTask        = "hermes-task-id" // made safe for a name
	tagIdentity    = "elsewhere-identity"
	tagProfile     = "elsewhere-profile" // made safe for a name
	tagMachine     = "elsewhere-machine" // owner.Tag: who can tell whether the owner lives
	tagOwner       = "elsewhere-owner"
	tagPersist     = "elsewhere-persist"
	tagFingerprint = "elsewhere-fingerprint"
	tagMade        = "elsewhere-made" // seconds since 1970
	tagEnds        = "elsewhere-ends" // the same, of the end of its lifetime

	agent = "elsewhere"
)

// makePlan reads the settings; nothing is sent. What the service cannot do is an error here, before anything is made.
func makePlan(req driver.OpenRequest) (*plan, error) {
	cfg := req.Config
	p := &plan{
		image: strings.TrimSpace(cfg.String("modal_image")), lifetime: ceil(cfg.Duration("modal_lifetime")), idle: ceil(cfg.Duration("container_idle_timeout")), ttl: ceil(cfg.Duration("modal_snapshot_ttl")),
		persistent: cfg.Bool("container_persistent") && !req.ThrowAway && req.Identity.Home != "",
	}
	if p.persistent {
		p.name, p.keep = kept.Name(req.Identity, "", req.Task), cfg.Bool("modal_keep_running")
	} else if !alone(req) {
		p.name = kept.Name(req.Identity, "", req.Task)
	}
	p.key = storeKey(req)
	if p.image == "" {
		return nil, failure(driver.KindConfig, "modal_image (%s) is empty: name an image", cfg.Origin("modal_image"))
	}
	if p.lifetime > longest {
		return nil, failure(driver.KindConfig, "modal_lifetime is %v (%s): Modal ends every sandbox after 24 hours", p.lifetime, cfg.Origin("modal_lifetime"))
	}
	if p.idle > p.lifetime {
		p.idle = 0 // its lifetime is over before
	}
	if err := p.resources(cfg); err != nil {
		return nil, err
	}
	p.settings = kept.Settings{
		"modal_image": p.image, "modal_gpu": p.params.GPU, "network": strconv.FormatBool(!p.params.BlockNetwork),
		"container_cpu": cfg.String("container_cpu"), "container_memory": strconv.Itoa(p.params.MemoryMiB),
		// What ends with its run and what is stored are two things: neither is used as the other.
		"container_persistent": strconv.FormatBool(p.persistent),
	}
	notice := ""
	if p.dir, notice = startDir(cfg.String("cwd"), req); notice != "" {
		p.notices = append(p.notices, notice)
	}
	var notices []string
	p.callEnv, notices = scrub.Forward(req.Environ, cfg.Strings("env_passthrough"))
	p.notices = append(p.notices, notices...)
	p.params.Name, p.params.Timeout, p.params.IdleTimeout = p.name, p.lifetime, p.idle
	p.params.Command = []string{"sleep", "infinity"}
	p.params.Tags = p.tags(req)
	return p, nil
}

// lockName is what a sandbox's lock has its files by: other backends have sandboxes of the same name.
func lockName(name string) string { return "modal." + name }

// alone says that no other process can find the sandbox.
func alone(req driver.OpenRequest) bool { return req.ThrowAway || req.Identity.Home == "" }

// ceil gives whole seconds, of which alone the service knows.
func ceil(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// resources converts limits.
func (p *plan) resources(cfg driver.Config) error {
	const none = "the service's own default"
	if cpu := cfg.Float("container_cpu"); cpu > 0 {
		if milli := 1000 * cpu; milli < 1 || milli > math.MaxUint32 {
			return failure(driver.KindConfig, "container_cpu is %g (%s): Modal counts in thousandths of a CPU", cpu, cfg.Origin("container_cpu"))
		}
		p.params.CPU = cpu
		p.feature("CPU", driver.Active, amount.Of(cpu, "CPU")+" reserved; more may be used, and costs")
	} else {
		p.feature("CPU", driver.Degraded, none)
	}
	if memory := cfg.Bytes("container_memory"); memory > 0 {
		mib := (memory + 1<<20 - 1) >> 20
		if mib > math.MaxUint32 {
			return failure(driver.KindConfig, "container_memory is %d MiB (%s), which Modal cannot count", mib, cfg.Origin("container_memory"))
		}
		p.params.MemoryMiB = int(mib)
		p.feature("memory", driver.Active, fmt.Sprintf("%d MiB are reserved; more may be used, and cost", mib))
	} else {
		p.feature("memory", driver.Degraded, none)
	}
	if gpu := strings.TrimSpace(cfg.String("modal_gpu")); gpu != "" {
		if !gpuName.MatchString(gpu) {
			return failure(driver.KindConfig, "modal_gpu is %q (%s): it is a name such as T4 or A100-80GB, and how many behind a colon", gpu, cfg.Origin("modal_gpu"))
		}
		p.params.GPU = gpu
		p.feature("GPU", driver.Active, gpu)
	}
	p.feature("disk limit", driver.Unsupported, "Modal's SDK has none")
	if cfg.IsSet("container_disk") && cfg.Bytes("container_disk") > 0 {
		p.notices = append(p.notices, fmt.Sprintf("container_disk (%s) is not applied: Modal's SDK has no limit for the disk", cfg.Origin("container_disk")))
	}
	if p.params.BlockNetwork = !cfg.Bool("modal_network"); p.params.BlockNetwork {
		p.feature("network", driver.Active, "none")
	} else {
		p.feature("network", driver.Active, "the service's, unrestricted")
	}
	return nil
}

var gpuName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*(:[1-9][0-9]?)?$`)

func (p *plan) feature(name string, state driver.FeatureState, detail string) {
	p.features = append(p.features, driver.Feature{Name: name, State: state, Detail: detail})
}

// tags say whose sandbox this is and what it was made with. None is a secret; all are short, since nobody says how long they may be.
func (p *plan) tags(req driver.OpenRequest) map[string]string {
	id, now := req.Identity, time.Now()
	return map[string]string{
		tagAgent: agent, tagTask: safename.Of(req.Task), tagIdentity: id.ID, tagProfile: safename.Of(id.Profile), tagMachine: owner.Tag(id.Home), tagOwner: id.Owner,
		tagPersist: strconv.FormatBool(p.persistent), tagFingerprint: p.settings.Fingerprint(),
		tagMade: strconv.FormatInt(now.Unix(), 10), tagEnds: strconv.FormatInt(now.Add(p.lifetime).Unix(), 10),
	}
}

// storeKey is the task's name in the store, in Hermes' form; a named backend's has its name too.
func storeKey(req driver.OpenRequest) string {
	if _, entry, named := strings.Cut(req.Identity.Profile, "/"); named {
		return "direct:" + entry + "/" + req.Task
	}
	return "direct:" + req.Task
}

// startDir gives the directory of a new session from the setting cwd; "" is the home directory, and a path may begin with ~. A path
// that can only be this machine's is replaced, with a notice.
func startDir(cwd string, req driver.OpenRequest) (dir, notice string) {
	replaced := func(why string) (string, string) {
		return "", fmt.Sprintf("cwd is %q, %s: sessions start in the sandbox's home directory", cwd, why)
	}
	switch cwd = strings.TrimSpace(cwd); {
	case cwd == "" || cwd == "." || cwd == "~":
		return "", ""
	case strings.HasPrefix(cwd, "~/"):
		return path.Clean(cwd), ""
	case strings.ContainsRune(cwd, 0):
		return replaced("which is no path")
	case hostpath.Only(cwd):
		return replaced("a path of this machine")
	case !path.IsAbs(cwd):
		return replaced("a relative path, which means nothing in the sandbox")
	}
	cwd = path.Clean(cwd)
	below := func(dir string) bool { return cwd == dir || strings.HasPrefix(cwd, strings.TrimSuffix(dir, "/")+"/") }
	home := ""
	for _, entry := range req.Environ {
		if value, ok := strings.CutPrefix(entry, "HOME="); ok && path.IsAbs(value) {
			home = path.Clean(value)
		}
	}
	st, err := os.Stat(cwd)
	here := err == nil && st.IsDir()
	if hostpath.People(cwd) || here && (below("/home") || home != "" && home != "/root" && home != "/" && below(home)) {
		return replaced("a directory of this machine")
	}
	return cwd, ""
}
