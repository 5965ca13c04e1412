package vercel

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// The tags of our sandboxes: the service allows five. Values are without colons, for which a filter has another use.
const (
	tagIdentity = "elsewhere" // of which identity and profile
	tagTask     = "elsewhere-task"
	tagOwner    = "elsewhere-owner"
	tagMachine  = "elsewhere-machine"
	tagSettings = "elsewhere-settings"

	maxTag = 240 // bytes of a value

	settingPersist = "container_persistent"
)

const (
	mibPerVCPU = 2048
	maxVCPUs   = 32
	// defaultDisk is what container_disk is where nobody sets it, in bytes; the service has no setting for it.
	defaultDisk = 51200 << 20
	// keepSnapshots is how many states of a sandbox's files the service keeps: the last one and the one before.
	keepSnapshots = 2
	shortestLife  = time.Minute
	longestLife   = 24 * time.Hour
)

// plan is what a sandbox is made with.
type plan struct {
	name     string
	persist  bool // it outlives this process
	life     time.Duration
	body     creation
	settings kept.Settings
	features []driver.Feature
	notices  []string
}

func alone(req driver.OpenRequest) bool { return req.ThrowAway || req.Identity.Home == "" }

// makePlan reads the settings. What the service cannot do is said before anything is made.
func makePlan(req driver.OpenRequest) (*plan, error) {
	cfg := req.Config
	p := &plan{name: kept.Name(req.Identity, "", req.Task), settings: kept.Settings{}, life: cfg.Duration("vercel_lifetime")}
	p.persist = !alone(req) && cfg.Bool("container_persistent")
	if alone(req) {
		p.name += "-" + owner.NewID()[:8]
	}
	if p.life < shortestLife || p.life > longestLife {
		return nil, failure(driver.KindConfig, "vercel_lifetime (%s) is %v: the service lets a sandbox run for %v to %v at a time", cfg.Origin("vercel_lifetime"), p.life, shortestLife, longestLife)
	}
	if disk := cfg.Bytes("container_disk"); disk != 0 && disk != defaultDisk {
		return nil, failure(driver.KindConfig, "container_disk (%s) cannot be set on vercel, whose sandboxes have a disk of one size: leave it out", cfg.Origin("container_disk"))
	}
	p.body = creation{Name: p.name, Timeout: p.life.Milliseconds(), Persistent: p.persist}
	if err := p.size(cfg); err != nil {
		return nil, err
	}
	p.body.Runtime, p.body.Image = cfg.String("vercel_runtime"), strings.TrimSpace(cfg.String("vercel_image"))
	if p.body.Image != "" {
		p.body.Runtime = ""
	}
	p.settings["image"] = p.body.Runtime + p.body.Image
	// What is deleted on close and what is stored are two things: neither is used as the other.
	p.settings[settingPersist] = strconv.FormatBool(p.persist)
	detail := "deleted on close"
	if p.persist {
		p.body.Keep = &keepLast{Count: keepSnapshots, DeleteEvicted: true}
		detail = "files are stored by the service when it stops the sandbox, on close and at the end of its time"
	}
	p.features = append(p.features,
		driver.Feature{Name: "persistence", State: driver.Active, Detail: detail},
		driver.Feature{Name: "auto-stop", State: driver.Active, Detail: fmt.Sprintf("after %v in which nothing runs", p.life)},
		driver.Feature{Name: "network", State: driver.Active, Detail: "open"})
	p.body.Tags = map[string]string{
		tagIdentity: cloudbox.IdentityHash(req.Identity), tagTask: taskTag(req.Task), tagOwner: req.Identity.Owner,
		tagMachine: machineHash(req.Identity.Machine), tagSettings: settingsTag(p.settings),
	}
	return p, nil
}

func machineHash(machine string) string {
	sum := sha256.Sum256([]byte(machine))
	return hex.EncodeToString(sum[:6])
}

// taskTag is a task's name as a tag has room for it: what is too long is cut.
func taskTag(task string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(task[:min(len(task), maxTag*3/4)]))
}

func taskOf(tags map[string]string) string {
	raw, _ := base64.RawURLEncoding.DecodeString(tags[tagTask])
	return string(raw)
}

// settingsTag holds the settings, with the hash of a value that is too long in its place.
func settingsTag(s kept.Settings) string {
	if image := s["image"]; len(image) > 100 {
		sum := sha256.Sum256([]byte(image))
		s["image"] = image[:60] + "~" + hex.EncodeToString(sum[:8])
	}
	return base64.RawURLEncoding.EncodeToString([]byte(s.String()))
}

// lockName is what a sandbox's lock has its files by: other backends have sandboxes of the same name.
func lockName(name string) string { return "vercel." + name }

// settingsOf gives what a sandbox was made with; whether it persists is the service's word.
func settingsOf(b *box) kept.Settings {
	raw, _ := base64.RawURLEncoding.DecodeString(b.Tags[tagSettings])
	s := kept.Parse(string(raw))
	if s == nil {
		s = kept.Settings{}
	}
	s[settingPersist] = strconv.FormatBool(b.Persistent)
	return s
}

// ours tells whether a sandbox with these tags may be used for this request.
func (p *plan) ours(tags map[string]string) bool {
	return tags[tagIdentity] == p.body.Tags[tagIdentity] && tags[tagTask] == p.body.Tags[tagTask]
}

// size sets the number of virtual CPUs: 1 or an even number, each with its part of memory. Memory counts where somebody set it.
func (p *plan) size(cfg driver.Config) error {
	n, asks := int64(math.Ceil(cfg.Float("container_cpu"))), fmt.Sprintf("container_cpu is %g (%s)", cfg.Float("container_cpu"), cfg.Origin("container_cpu"))
	if memory := (cfg.Bytes("container_memory") + mibPerVCPU<<20 - 1) / (mibPerVCPU << 20); cfg.IsSet("container_memory") && memory > n {
		n, asks = memory, fmt.Sprintf("container_memory is %d MiB (%s)", cfg.Bytes("container_memory")>>20, cfg.Origin("container_memory"))
	}
	if n > 1 && n%2 != 0 {
		n++
	}
	if n > maxVCPUs {
		return failure(driver.KindConfig, "%s, which takes %d virtual CPUs of %d MiB each: vercel gives at most %d, so ask for less", asks, n, mibPerVCPU, maxVCPUs)
	}
	p.settings["container_cpu"] = strconv.FormatInt(n, 10)
	cpu, memory := "the service's default", "the service's default"
	if n > 0 {
		p.body.Resources = &resources{n}
		cpu, memory = amount.Of(n, "vCPU"), fmt.Sprintf("%d MiB, %d for each vCPU", n*mibPerVCPU, mibPerVCPU)
	}
	p.features = append(p.features, driver.Feature{Name: "limit: cpu", State: driver.Active, Detail: cpu}, driver.Feature{Name: "limit: memory", State: driver.Active, Detail: memory})
	return nil
}
