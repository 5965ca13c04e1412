package daytona

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// The labels of our sandboxes.
const (
	labelAgent       = "hermes-agent"
	labelTask        = "elsewhere.task" // in base64: a label need not survive every byte
	labelIdentity    = "elsewhere.identity"
	labelProfile     = "elsewhere.profile"
	labelScope       = "elsewhere.scope"
	labelMachine     = "elsewhere.machine"
	labelUID         = "elsewhere.uid"
	labelOwner       = "elsewhere.owner"
	labelFingerprint = "elsewhere.fingerprint"
	labelSettings    = "elsewhere.settings"
	labelPersist     = "elsewhere.persist"
	labelLanguage    = "code-toolbox-language" // the vendor's SDK goes by it

	agent = "elsewhere"
)

// hostedDisk is the most disk that the hosted service gives a sandbox, in GiB.
const hostedDisk = 10

// plan is what a sandbox is made with.
type plan struct {
	name     string
	scope    string
	persist  bool // it outlives this process
	body     creation
	settings kept.Settings
	features []driver.Feature
	notices  []string
}

// makePlan reads the settings; cloud says that the hosted service is asked. What the service cannot do is said before anything is
// made.
func makePlan(req driver.OpenRequest, cloud bool) (*plan, error) {
	cfg := req.Config
	p := &plan{scope: cfg.String("daytona_name_scope"), settings: kept.Settings{}}
	alone := req.ThrowAway || req.Identity.Home == ""
	p.persist = !alone && cfg.Bool("container_persistent") && !cfg.Bool("daytona_ephemeral")
	p.name = sandboxName(req, cfg.String("daytona_name_prefix"), p.scope)
	if alone {
		p.name += "-" + owner.NewID()[:8]
	}
	p.body = creation{Name: p.name, Target: cfg.String("daytona_target"), AutoStop: cfg.Int("daytona_auto_stop_interval"), AutoArchive: cfg.Int("daytona_auto_archive_interval")}
	if err := p.source(cfg); err != nil {
		return nil, err
	}
	p.size(cfg, cloud)
	if err := p.network(cfg); err != nil {
		return nil, err
	}
	p.lapse(cfg)
	p.settings["daytona_target"] = p.body.Target
	// What is deleted on close and what is kept are two things: neither is used as the other.
	p.settings["container_persistent"] = strconv.FormatBool(p.persist)
	p.body.Labels = p.labels(req)
	p.body.Labels[labelFingerprint], p.body.Labels[labelSettings] = p.settings.Fingerprint(), p.settings.String()
	return p, nil
}

// sandboxName is what people recognise, and a hash of whose the sandbox is: the service's own name conflict elects one of two
// processes that start at once, and two users of one account never meet. Hermes' name for the same task is another one, so that neither takes the
// other's.
func sandboxName(req driver.OpenRequest, prefix, scope string) string {
	id, safe := req.Identity, ""
	parts := []string{id.ID}
	switch scope {
	case "global":
	case "profile":
		parts, safe = append(parts, id.Profile), id.Profile
	default:
		parts, safe = append(parts, id.Profile, req.Task), req.Task
	}
	sum := sha256.Sum256([]byte(scope + "\x00" + strings.Join(parts, "\x00")))
	name := safename.Of(prefix)
	if safe != "" {
		safe = safename.Of(safe)
		name += "-" + strings.TrimRight(safe[:min(len(safe), 24)], ".-_")
	}
	return name + "-" + hex.EncodeToString(sum[:6])
}

// source is what the sandbox is made from, and how big it is: what comes from a snapshot has the snapshot's size.
func (p *plan) source(cfg driver.Config) error {
	if cfg.String("daytona_create_mode") == "snapshot" {
		p.body.Snapshot = cfg.String("daytona_snapshot")
		if p.body.Snapshot == "" {
			return failure(driver.KindConfig, "daytona_create_mode is snapshot (%s), and daytona_snapshot names none: set it to one of the account's", cfg.Origin("daytona_create_mode"))
		}
		for _, key := range []string{"container_cpu", "container_memory", "container_disk"} {
			if cfg.IsSet(key) {
				p.notices = append(p.notices, fmt.Sprintf("%s (%s) is not in force: a sandbox that is made from a snapshot has the snapshot's size", key, cfg.Origin(key)))
			}
		}
		p.settings["daytona_snapshot"] = p.body.Snapshot
		p.features = append(p.features, driver.Feature{Name: "limits", State: driver.Active, Detail: "those of the snapshot " + p.body.Snapshot})
		return nil
	}
	image := strings.TrimSpace(cfg.String("daytona_image"))
	if image == "" || strings.ContainsAny(image, " \t\r\n") {
		return failure(driver.KindConfig, "daytona_image (%s) is %q: name one image", cfg.Origin("daytona_image"), image)
	}
	p.body.Build = &build{Dockerfile: "FROM " + image + "\n"}
	p.settings["daytona_image"] = image
	return nil
}

// size sets CPUs and sizes, in whole ones and GiB, rounded up.
func (p *plan) size(cfg driver.Config, cloud bool) {
	if p.body.Snapshot != "" {
		return
	}
	p.body.CPU = int64(math.Ceil(cfg.Float("container_cpu")))
	p.body.Memory, p.body.Disk = gib(cfg.Bytes("container_memory")), gib(cfg.Bytes("container_disk"))
	if cloud && p.body.Disk > hostedDisk {
		if cfg.IsSet("container_disk") {
			p.notices = append(p.notices, fmt.Sprintf("container_disk (%s) is %d GiB; the hosted service gives at most %d", cfg.Origin("container_disk"), p.body.Disk, hostedDisk))
		}
		p.body.Disk = hostedDisk
	}
	for _, l := range []struct {
		name, key string
		n         int64
	}{{"limit: cpu", "container_cpu", p.body.CPU}, {"limit: memory", "container_memory", p.body.Memory}, {"limit: disk", "container_disk", p.body.Disk}} {
		p.settings[l.key] = strconv.FormatInt(l.n, 10)
		detail := fmt.Sprintf("%d GiB", l.n)
		switch {
		case l.n == 0:
			detail = "the service's default"
		case l.key == "container_cpu":
			detail = amount.Of(l.n, "CPU")
		}
		p.features = append(p.features, driver.Feature{Name: l.name, State: driver.Active, Detail: detail})
	}
}

func gib(bytes int64) int64 { return (bytes + 1<<30 - 1) >> 30 }

// network says what the sandbox reaches. A range that is none is told here: nobody knows what the service makes of it.
func (p *plan) network(cfg driver.Config) error {
	allow := cfg.Strings("daytona_network_allow_list")
	for _, one := range allow {
		if _, err := netip.ParsePrefix(one); err != nil {
			return failure(driver.KindConfig, "daytona_network_allow_list (%s) has %q, which is no address range: write each as in 10.1.0.0/16", cfg.Origin("daytona_network_allow_list"), one)
		}
	}
	p.body.BlockAll, p.body.Allow = cfg.Bool("daytona_network_block_all"), strings.Join(allow, ",")
	said := "open"
	switch {
	case p.body.BlockAll:
		said, p.body.Allow = "none", ""
		if len(allow) > 0 {
			p.notices = append(p.notices, fmt.Sprintf("daytona_network_allow_list (%s) is not in force: daytona_network_block_all is on, and the sandbox has no network", cfg.Origin("daytona_network_allow_list")))
		}
	case len(allow) > 0:
		slices.Sort(allow)
		said = strings.Join(allow, ",")
	}
	p.settings["network"] = said
	p.features = append(p.features, driver.Feature{Name: "network", State: driver.Active, Detail: said})
	return nil
}

// lapse says what the service does to a sandbox that is left alone. One that does not persist goes when it stops: a process
// that dies leaves nothing that is paid for.
func (p *plan) lapse(cfg driver.Config) {
	p.body.AutoDelete = cfg.Int("daytona_auto_delete_interval")
	if p.body.AutoDelete == 0 {
		p.body.AutoDelete = -1
	}
	detail := "files are kept by the service, which stops it on close"
	if !p.persist {
		p.body.AutoDelete = 0
		detail = "deleted on close"
	}
	p.features = append(p.features, driver.Feature{Name: "persistence", State: driver.Active, Detail: detail})
	if p.body.AutoStop == 0 {
		p.notices = append(p.notices, "daytona_auto_stop_interval is 0: a sandbox whose process died runs, and is paid for, until somebody stops it")
		p.features = append(p.features, driver.Feature{Name: "auto-stop", State: driver.Unsupported, Detail: "switched off by daytona_auto_stop_interval"})
		return
	}
	p.features = append(p.features, driver.Feature{Name: "auto-stop", State: driver.Active, Detail: fmt.Sprintf("after %d idle minutes", p.body.AutoStop)})
}

// labels say whose sandbox this is and what it was made with. None is a secret.
func (p *plan) labels(req driver.OpenRequest) map[string]string {
	id := req.Identity
	labels := map[string]string{
		labelAgent: agent, labelTask: base64.StdEncoding.EncodeToString([]byte(req.Task)), labelIdentity: id.ID, labelProfile: id.Profile, labelScope: p.scope,
		labelMachine: id.Machine, labelUID: id.UID, labelOwner: id.Owner, labelPersist: strconv.FormatBool(p.persist),
	}
	if language := req.Config.String("daytona_language"); language != "" {
		labels[labelLanguage] = language
	}
	return labels
}

// taskOf is the task of a sandbox with these labels, as the user wrote it.
func taskOf(labels map[string]string) string {
	raw, _ := base64.StdEncoding.DecodeString(labels[labelTask])
	return string(raw)
}

// ours tells whether a sandbox with these labels may be used for this request.
func (p *plan) ours(labels map[string]string, req driver.OpenRequest) bool {
	if labels[labelAgent] != agent || labels[labelIdentity] != req.Identity.ID || labels[labelScope] != p.scope {
		return false
	}
	switch p.scope {
	case "global":
		return true
	case "profile":
		return labels[labelProfile] == req.Identity.Profile
	}
	return labels[labelProfile] == req.Identity.Profile && taskOf(labels) == req.Task
}
