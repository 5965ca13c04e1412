package docker

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/go-connections/nat"
	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
)

// extraArgs is what docker_extra_args asks for, parsed and checked.
type extraArgs struct {
	labels     map[string]string
	env        map[string]string // values that are given
	forward    []string          // names whose values are the caller's
	gpus       []container.DeviceRequest
	devices    []container.DeviceMapping
	hosts      []string
	shm        int64 // -1: not given
	ulimits    []*container.Ulimit
	exposed    network.PortSet
	ports      network.PortMap
	dns        []netip.Addr
	mounts     []mount.Mount
	volumes    []volume
	tmpfs      map[string]string
	network    string
	hostname   string
	runtime    string
	privileged bool
	capAdd     []string
	security   []string
	pid, ipc   string

	unsafe []string // the flags that need docker_allow_unsafe_args, sorted
	canon  []string // the flags with their values, for the fingerprint; without env and network
}

// extraFlag is one flag of the closed list.
type extraFlag struct {
	name   string
	short  byte
	bare   bool // it takes no value but may have one behind =
	once   bool
	unsafe bool
	set    func(a *extraArgs, value, home string) error
}

func extraFlags() []extraFlag {
	return []extraFlag{
		{name: "label", short: 'l', set: (*extraArgs).setLabel},
		{name: "env", short: 'e', set: (*extraArgs).setEnv},
		{name: "gpus", once: true, set: (*extraArgs).setGPUs},
		{name: "device", set: (*extraArgs).setDevice},
		{name: "add-host", set: (*extraArgs).setHost},
		{name: "shm-size", once: true, set: (*extraArgs).setShm},
		{name: "ulimit", set: (*extraArgs).setUlimit},
		{name: "publish", short: 'p', set: (*extraArgs).setPort},
		{name: "dns", set: (*extraArgs).setDNS},
		{name: "mount", set: (*extraArgs).setMount},
		{name: "volume", short: 'v', set: (*extraArgs).setVolume},
		{name: "tmpfs", set: (*extraArgs).setTmpfs},
		{name: "network", once: true, set: (*extraArgs).setNetwork},
		{name: "hostname", short: 'h', once: true, set: (*extraArgs).setHostname},
		{name: "runtime", once: true, set: func(a *extraArgs, v, _ string) error { return word(&a.runtime, v) }},
		{name: "privileged", bare: true, unsafe: true, once: true, set: (*extraArgs).setPrivileged},
		{name: "cap-add", unsafe: true, set: (*extraArgs).setCap},
		{name: "security-opt", unsafe: true, set: func(a *extraArgs, v, _ string) error { a.security = append(a.security, v); return nil }},
		{name: "pid", unsafe: true, once: true, set: func(a *extraArgs, v, _ string) error { return hostOnly(&a.pid, v) }},
		{name: "ipc", unsafe: true, once: true, set: func(a *extraArgs, v, _ string) error { return hostOnly(&a.ipc, v) }},
	}
}

// flagAliases are other spellings that docker takes.
var flagAliases = map[string]string{"net": "network"}

// parseExtraArgs reads arguments written as for `docker run`: `--flag value` and `--flag=value`, as two entries or one, and
// the short forms. Home is the caller's, for ~. An error names the entry by its number and text.
func parseExtraArgs(args []string, home string, allowUnsafe bool) (*extraArgs, error) {
	a := &extraArgs{labels: map[string]string{}, env: map[string]string{}, tmpfs: map[string]string{}, ports: network.PortMap{}, exposed: network.PortSet{}, shm: -1}
	flags := extraFlags()
	seen := map[string]bool{}
	for i := 0; i < len(args); i++ {
		arg := strings.TrimSpace(args[i])
		bad := func(format string, values ...any) error {
			return fmt.Errorf("entry %d (%s): %s", i+1, shownArg(arg), fmt.Sprintf(format, values...))
		}
		if arg == "" {
			return nil, bad("it is empty; write an argument as for `docker run`, or take it out")
		}
		flag, value, has := cutFlag(flags, arg)
		if flag == nil {
			return nil, bad("not one of the arguments that are accepted: %s", flagList(flags))
		}
		if flag.unsafe && !allowUnsafe {
			return nil, bad("--%s weakens the isolation of the container; it needs docker_allow_unsafe_args: true", flag.name)
		}
		entry := i
		if !has && flag.bare {
			value, has = "true", true
		}
		if !has && i+1 < len(args) {
			i++
			value, has = args[i], true
		}
		if !has {
			return nil, bad("--%s needs a value", flag.name)
		}
		if flag.once && seen[flag.name] {
			return nil, bad("--%s is given twice", flag.name)
		}
		seen[flag.name] = true
		if err := flag.set(a, value, home); err != nil {
			return nil, fmt.Errorf("entry %d (%s): %w", entry+1, shownArg(arg), err)
		}
		if flag.unsafe && !slices.Contains(a.unsafe, flag.name) {
			a.unsafe = append(a.unsafe, flag.name)
		}
		switch flag.name {
		case "env": // each call brings the variables anew, and values are secrets
		case "network": // a setting of its own
		default:
			a.canon = append(a.canon, flag.name+"="+value)
		}
	}
	slices.Sort(a.unsafe)
	slices.Sort(a.canon)
	return a, nil
}

// shownArg is an entry as an error shows it: the value of a variable may be a secret.
func shownArg(arg string) string {
	flag, rest := "", arg
	switch {
	case strings.HasPrefix(arg, "--env=") || strings.HasPrefix(arg, "--env "):
		flag, rest = "--env ", arg[len("--env "):]
	case strings.HasPrefix(arg, "-e"):
		flag, rest = "-e ", strings.TrimLeft(arg[2:], "= ")
	case strings.HasPrefix(arg, "-"):
		return arg
	}
	name, _, has := strings.Cut(rest, "=")
	if has {
		name += "=..."
	}
	return flag + name
}

// cutFlag finds the flag of an entry, and its value where that is in the same entry.
func cutFlag(flags []extraFlag, arg string) (flag *extraFlag, value string, has bool) {
	find := func(match func(f *extraFlag) bool) *extraFlag {
		if i := slices.IndexFunc(flags, func(f extraFlag) bool { return match(&f) }); i >= 0 {
			return &flags[i]
		}
		return nil
	}
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		end := strings.IndexAny(long, "= ")
		name := long
		if end >= 0 {
			name, value, has = long[:end], strings.TrimLeft(long[end+1:], " "), true
		}
		if other, ok := flagAliases[name]; ok {
			name = other
		}
		return find(func(f *extraFlag) bool { return f.name == name }), value, has
	}
	if len(arg) < 2 || arg[0] != '-' {
		return nil, "", false
	}
	flag = find(func(f *extraFlag) bool { return f.short != 0 && f.short == arg[1] })
	if len(arg) > 2 {
		value, has = strings.TrimLeft(strings.TrimPrefix(arg[2:], "="), " "), true
	}
	return flag, value, has
}

func flagList(flags []extraFlag) string {
	var names []string
	for _, f := range flags {
		names = append(names, "--"+f.name)
	}
	return strings.Join(names, " ")
}

// word takes a value that is one word.
func word(to *string, value string) error {
	if value == "" || strings.ContainsAny(value, " \t\n\x00") {
		return fmt.Errorf("%q is not a name", value)
	}
	*to = value
	return nil
}

var (
	networkName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
	hostName    = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$`)
)

func (a *extraArgs) setNetwork(value, _ string) error {
	if strings.HasPrefix(value, "container:") || strings.HasPrefix(value, "ns:") {
		return fmt.Errorf("%q is the network of something else that may go away at any time, which is not accepted; name a network that both are in (docker network create)", value)
	}
	if !networkName.MatchString(value) {
		return fmt.Errorf("%q is not a name of a network ([a-zA-Z0-9][a-zA-Z0-9_.-]*); `docker network ls` lists them", value)
	}
	a.network = value
	return nil
}

func (a *extraArgs) setHostname(value, _ string) error {
	if !hostName.MatchString(value) {
		return fmt.Errorf("%q is not a name of a host; use at most 63 letters, digits, dots and dashes", value)
	}
	a.hostname = value
	return nil
}

func hostOnly(to *string, value string) error {
	if value != "host" {
		return fmt.Errorf("%q is not accepted, only host", value)
	}
	*to = value
	return nil
}

func (a *extraArgs) setLabel(value, _ string) error {
	name, val, _ := strings.Cut(value, "=")
	switch {
	case name == "":
		return errors.New("the label has no name")
	case strings.HasPrefix(name, "hermes-") || strings.HasPrefix(name, "elsewhere"):
		return fmt.Errorf("the label %s is elsewhere's own", name)
	}
	if had, ok := a.labels[name]; ok && had != val {
		return fmt.Errorf("the label %s is given twice", name)
	}
	a.labels[name] = val
	return nil
}

func (a *extraArgs) setEnv(value, _ string) error {
	name, val, has := strings.Cut(value, "=")
	if name == "" {
		return errors.New("the variable has no name")
	}
	if has {
		a.env[name] = val
	} else {
		a.forward = append(a.forward, name)
	}
	return nil
}

func (a *extraArgs) setGPUs(value, _ string) error {
	request := container.DeviceRequest{Capabilities: [][]string{{"gpu"}}}
	if n, err := strconv.Atoi(value); err == nil {
		value = "count=" + strconv.Itoa(n)
	} else if value == "all" {
		value = "count=all"
	}
	fields, err := csvFields(strings.Trim(value, `'`))
	if err != nil {
		return err
	}
	for _, field := range fields {
		key, val, ok := strings.Cut(field, "=")
		switch {
		case !ok:
			return fmt.Errorf("%q is not key=value; write all, a number, or device=0", field)
		case key == "count" && val == "all":
			request.Count = -1
		case key == "count":
			if request.Count, err = strconv.Atoi(val); err != nil || request.Count < 1 {
				return fmt.Errorf("count=%s is not a number of GPUs", val)
			}
		case key == "device":
			request.DeviceIDs = append(request.DeviceIDs, strings.Split(val, ",")...)
		case key == "driver":
			request.Driver = val
		case key == "capabilities":
			request.Capabilities = [][]string{append(strings.Split(val, ","), "gpu")}
		default:
			return fmt.Errorf("%s is unknown; there are count, device, driver, capabilities", key)
		}
	}
	if request.Count == 0 && len(request.DeviceIDs) == 0 {
		request.Count = -1
	}
	if request.Count != 0 && len(request.DeviceIDs) > 0 {
		return errors.New("count and device exclude each other")
	}
	a.gpus = append(a.gpus, request)
	return nil
}

func csvFields(text string) ([]string, error) {
	// docker's own form quotes a field that holds a comma, as in "device=0,1" with the quotes.
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return nil, fmt.Errorf("%q is not a comma-separated list of key=value", text)
	}
	return fields, nil
}

var deviceMode = regexp.MustCompile(`^[rwm]{1,3}$`)

func (a *extraArgs) setDevice(value, _ string) error {
	parts := strings.Split(value, ":")
	d := container.DeviceMapping{PathOnHost: parts[0], PathInContainer: parts[0], CgroupPermissions: "rwm"}
	switch {
	case !path.IsAbs(parts[0]) || len(parts) > 3:
		return fmt.Errorf("%q is not a device; write /dev/NAME[:/dev/NAME[:rwm]]", value)
	case len(parts) == 2 && deviceMode.MatchString(parts[1]):
		d.CgroupPermissions = parts[1]
	case len(parts) > 1:
		d.PathInContainer = parts[1]
		if !path.IsAbs(parts[1]) {
			return fmt.Errorf("the device's name in the container, %q, is not absolute", parts[1])
		}
	}
	if len(parts) == 3 {
		if !deviceMode.MatchString(parts[2]) {
			return fmt.Errorf("%q is not a combination of r, w and m", parts[2])
		}
		d.CgroupPermissions = parts[2]
	}
	a.devices = append(a.devices, d)
	return nil
}

func (a *extraArgs) setHost(value, _ string) error {
	name, ip, ok := strings.Cut(value, ":")
	if before, after, eq := strings.Cut(value, "="); eq {
		name, ip, ok = before, after, true
	}
	ip = strings.Trim(ip, "[]")
	if _, err := netip.ParseAddr(ip); !ok || name == "" || err != nil && ip != "host-gateway" {
		return fmt.Errorf("%q is not NAME:ADDRESS (or NAME:host-gateway)", value)
	}
	a.hosts = append(a.hosts, name+":"+ip)
	return nil
}

func (a *extraArgs) setShm(value, _ string) error {
	n, err := units.RAMInBytes(value)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a size such as 64m", value)
	}
	a.shm = n
	return nil
}

func (a *extraArgs) setUlimit(value, _ string) error {
	u, err := units.ParseUlimit(value)
	if err != nil {
		return fmt.Errorf("%q is not a limit such as nofile=1024:2048 (%w)", value, err)
	}
	if u.Name == "locks" {
		return errors.New("the limit of locks is elsewhere's own: it marks the processes of a call")
	}
	a.ulimits = append(a.ulimits, u)
	return nil
}

func (a *extraArgs) setPort(value, _ string) error {
	mappings, err := nat.ParsePortSpec(value)
	if err != nil {
		return fmt.Errorf("%q is not a port such as 127.0.0.1:8080:80 (%w)", value, err)
	}
	for _, m := range mappings {
		port, err := network.ParsePort(string(m.Port))
		if err != nil {
			return err
		}
		binding := network.PortBinding{HostPort: m.Binding.HostPort}
		if m.Binding.HostIP != "" {
			if binding.HostIP, err = netip.ParseAddr(m.Binding.HostIP); err != nil {
				return err
			}
		}
		a.exposed[port] = struct{}{}
		a.ports[port] = append(a.ports[port], binding)
	}
	return nil
}

func (a *extraArgs) setDNS(value, _ string) error {
	ip, err := netip.ParseAddr(value)
	if err != nil {
		return fmt.Errorf("%q is not an address", value)
	}
	a.dns = append(a.dns, ip)
	return nil
}

func (a *extraArgs) setVolume(value, home string) error {
	v, err := parseVolume(value, home)
	if err == nil {
		a.volumes = append(a.volumes, v)
	}
	return err
}

// tmpfsOption matches what engine and kernel know of a tmpfs.
var tmpfsOption = regexp.MustCompile(`^(ro|rw|exec|noexec|suid|nosuid|dev|nodev|sync|async|dirsync|atime|noatime|diratime|nodiratime|relatime|norelatime|strictatime|nostrictatime|U|(size|nr_inodes|nr_blocks)=[0-9]+[kKmMgG%]?|mode=[0-7]{1,4}|(uid|gid)=[0-9]+|(mpol|huge)=[a-z:0-9,=_-]+)$`)

func (a *extraArgs) setTmpfs(value, _ string) error {
	target, opts, _ := strings.Cut(value, ":")
	if !path.IsAbs(target) || path.Clean(target) == "/" {
		return fmt.Errorf("the target %q is not a directory in the container, from / on; write /PATH[:OPTIONS]", target)
	}
	target = path.Clean(target)
	for _, opt := range strings.Split(opts, ",") {
		if opt != "" && !tmpfsOption.MatchString(opt) {
			return fmt.Errorf("the option %q is unknown; there are ro, rw, exec, noexec, suid, nosuid, dev, nodev, noatime, size=64m, mode=1777, uid=1000, gid=1000, nr_inodes=1k", opt)
		}
	}
	if _, ok := a.tmpfs[target]; ok {
		return fmt.Errorf("%s is given twice", target)
	}
	a.tmpfs[target] = opts
	return nil
}

func (a *extraArgs) setPrivileged(value, _ string) error {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	a.privileged = on
	return nil
}

var capability = regexp.MustCompile(`^(CAP_)?[A-Z_]+$`)

func (a *extraArgs) setCap(value, _ string) error {
	value = strings.ToUpper(value)
	if !capability.MatchString(value) {
		return fmt.Errorf("%q is not a capability", value)
	}
	a.capAdd = append(a.capAdd, strings.TrimPrefix(value, "CAP_"))
	return nil
}

// setMount reads the key=value form of docker's --mount.
func (a *extraArgs) setMount(value, home string) error {
	fields, err := csvFields(value)
	if err != nil {
		return err
	}
	m := mount.Mount{Type: mount.TypeVolume}
	for _, field := range fields {
		key, val, has := strings.Cut(field, "=")
		if err := setMountField(&m, strings.ToLower(key), val, has); err != nil {
			return err
		}
	}
	return a.addMount(m, home)
}

func setMountField(m *mount.Mount, key, val string, has bool) (err error) {
	switch key {
	case "type":
		m.Type = mount.Type(val)
	case "source", "src":
		m.Source = val
	case "target", "dst", "destination":
		m.Target = val
	case "readonly", "ro":
		m.ReadOnly, err = boolean(val, has)
	case "bind-propagation":
		if !slices.Contains(mount.Propagations, mount.Propagation(val)) {
			return fmt.Errorf("bind-propagation=%s is unknown", val)
		}
		m.BindOptions = &mount.BindOptions{Propagation: mount.Propagation(val)}
	case "volume-nocopy":
		m.VolumeOptions = &mount.VolumeOptions{}
		m.VolumeOptions.NoCopy, err = boolean(val, has)
	case "tmpfs-size":
		n, bad := units.RAMInBytes(val)
		if bad != nil || n < 0 {
			return fmt.Errorf("tmpfs-size=%s is not a size such as 64m", val)
		}
		tmpfsOptions(m).SizeBytes = n
	case "tmpfs-mode":
		n, bad := strconv.ParseUint(val, 8, 32)
		if bad != nil || n > 0o7777 {
			return fmt.Errorf("tmpfs-mode=%s is not an octal mode such as 1777", val)
		}
		tmpfsOptions(m).Mode = os.FileMode(n) // the bits as they are: that is what the engine reads
	default:
		return fmt.Errorf("%s is unknown; there are type, source, target, readonly, bind-propagation, volume-nocopy, tmpfs-size, tmpfs-mode", key)
	}
	return err
}

func boolean(val string, has bool) (bool, error) {
	if !has {
		return true, nil
	}
	on, err := strconv.ParseBool(val)
	if err != nil {
		err = fmt.Errorf("%q is neither true nor false", val)
	}
	return on, err
}

func tmpfsOptions(m *mount.Mount) *mount.TmpfsOptions {
	if m.TmpfsOptions == nil {
		m.TmpfsOptions = &mount.TmpfsOptions{}
	}
	return m.TmpfsOptions
}

// addMount checks a mount as a whole. A bind and a named volume obey the rules of a -v.
func (a *extraArgs) addMount(m mount.Mount, home string) error {
	if !path.IsAbs(m.Target) || path.Clean(m.Target) == "/" {
		return fmt.Errorf("the target %q is not a path in the container, from / on; write target=/PATH", m.Target)
	}
	m.Target = path.Clean(m.Target)
	wrong := func(what string) error { return fmt.Errorf("%s does not go with type=%s", what, m.Type) }
	switch m.Type {
	case mount.TypeBind, mount.TypeVolume:
		v := volume{source: m.Source}
		if m.Type == mount.TypeBind || m.Source != "" {
			if err := v.checkSource(home); err != nil {
				return err
			}
			if v.named != (m.Type == mount.TypeVolume) {
				return wrong("source=" + m.Source)
			}
		}
		m.Source = v.source
	case mount.TypeTmpfs:
		if m.Source != "" {
			return wrong("a source")
		}
	default:
		return fmt.Errorf("type=%s is unknown; there are bind, volume, tmpfs", m.Type)
	}
	switch {
	case m.BindOptions != nil && m.Type != mount.TypeBind:
		return wrong("bind-propagation")
	case m.VolumeOptions != nil && m.Type != mount.TypeVolume:
		return wrong("volume-nocopy")
	case m.TmpfsOptions != nil && m.Type != mount.TypeTmpfs:
		return wrong("tmpfs-size or tmpfs-mode")
	}
	a.mounts = append(a.mounts, m)
	return nil
}
