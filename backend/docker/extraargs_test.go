package docker

import (
	"encoding/json"
	"strings"
	"testing"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestF07ExtraArgumentsAreReadAsDockerReadsThem(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // a part of the JSON of what is asked of the engine
	}{
		{[]string{"--label", "x=y"}, `"Labels":{"x":"y"}`},
		{[]string{"--label=x=y=z"}, `"Labels":{"x":"y=z"}`},
		{[]string{"-l", "x"}, `"Labels":{"x":""}`},
		{[]string{"--label x=y"}, `"Labels":{"x":"y"}`},
		{[]string{"-lx=y"}, `"Labels":{"x":"y"}`},
		{[]string{"--gpus", "all"}, `"DeviceRequests":[{"Driver":"","Count":-1,"DeviceIDs":null,"Capabilities":[["gpu"]],"Options":null}]`},
		{[]string{"--gpus=2"}, `"Count":2`},
		{[]string{"--gpus", `"device=0,1"`}, `"DeviceIDs":["0","1"]`},
		{[]string{"--gpus", "device=GPU-1,driver=nvidia"}, `"Driver":"nvidia","Count":0,"DeviceIDs":["GPU-1"]`},
		{[]string{"--device", "/dev/fuse"}, `"Devices":[{"PathOnHost":"/dev/fuse","PathInContainer":"/dev/fuse","CgroupPermissions":"rwm"}]`},
		{[]string{"--device=/dev/fuse:/dev/f:r"}, `"PathInContainer":"/dev/f","CgroupPermissions":"r"`},
		{[]string{"--device=/dev/fuse:rw"}, `"PathInContainer":"/dev/fuse","CgroupPermissions":"rw"`},
		{[]string{"--add-host", "a:10.0.0.1"}, `"ExtraHosts":["a:10.0.0.1"]`},
		{[]string{"--add-host=a=host-gateway"}, `"ExtraHosts":["a:host-gateway"]`},
		{[]string{"--add-host=a:::1"}, `"ExtraHosts":["a:::1"]`},
		{[]string{"--shm-size", "64m"}, `"ShmSize":67108864`},
		{[]string{"--ulimit", "nofile=10:20"}, `"Ulimits":[{"Name":"nofile","Hard":20,"Soft":10}]`},
		{[]string{"-p", "127.0.0.1:8080:80"}, `"PortBindings":{"80/tcp":[{"HostIp":"127.0.0.1","HostPort":"8080"}]}`},
		{[]string{"--publish=53:53/udp"}, `"53/udp":[{"HostIp":"","HostPort":"53"}]`},
		{[]string{"-p8000-8001:9000-9001"}, `"9001/tcp":[{"HostIp":"","HostPort":"8001"}]`},
		{[]string{"--dns", "1.1.1.1"}, `"Dns":["1.1.1.1"]`},
		{[]string{"--mount", "type=volume,src=data,dst=/d,readonly"}, `{"Type":"volume","Source":"data","Target":"/d","ReadOnly":true}`},
		{[]string{"--mount=type=tmpfs,target=/d,tmpfs-size=1m,tmpfs-mode=1777"}, `{"Type":"tmpfs","Target":"/d","TmpfsOptions":{"SizeBytes":1048576,"Mode":1023}}`},
		{[]string{"--mount", "type=bind,source=/usr,target=/u,bind-propagation=rslave,ro=true"}, `{"Type":"bind","Source":"/usr","Target":"/u","ReadOnly":true,"BindOptions":{"Propagation":"rslave"}}`},
		{[]string{"-v", "/usr:/u:ro"}, `"Binds":["/usr:/u:ro"]`},
		{[]string{"--tmpfs", "/scratch:size=1m,exec"}, `"/scratch":"size=1m,exec"`},
		{[]string{"--tmpfs", "/tmp:size=7m"}, `"/tmp":"size=7m"`},
		{[]string{"--network", "mine"}, `"NetworkMode":"mine"`},
		{[]string{"--net=mine"}, `"NetworkMode":"mine"`},
		{[]string{"-h", "box"}, `"Hostname":"box"`},
		{[]string{"--runtime=runsc"}, `"Runtime":"runsc"`},
	} {
		list, _ := json.Marshal(c.args)
		b := mustPlan(t, opening(t, settings{"docker_extra_args": string(list)}))
		got, _ := json.Marshal(map[string]any{"config": b.p.config, "host": b.p.host})
		if !strings.Contains(string(got), c.want) {
			t.Errorf("%q: no %s in %s", c.args, c.want, got)
		}
	}
}

func TestExtraArgumentsThatAreRefusedAreNamed(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--cap-drop", "ALL"}, "entry 1 (--cap-drop): not one of the arguments that are accepted: --label --env"},
		{[]string{"--label", "a=b", "--user=0"}, "entry 3 (--user=0): not one"},
		{[]string{"stray"}, "entry 1 (stray): not one"},
		{[]string{"-e", "A=1", "B=s3cret"}, "entry 3 (B=...): not one"},
		{[]string{"-x"}, "entry 1 (-x): not one"},
		{[]string{"--env-file=/x"}, "entry 1 (--env-file=/x): not one"},
		{[]string{"--privileged"}, "docker_allow_unsafe_args"},
		{[]string{"--cap-add", "SYS_ADMIN"}, "docker_allow_unsafe_args"},
		{[]string{"--security-opt=seccomp=unconfined"}, "docker_allow_unsafe_args"},
		{[]string{"--pid=host"}, "docker_allow_unsafe_args"},
		{[]string{"--ipc", "host"}, "docker_allow_unsafe_args"},
		{[]string{"--label"}, "needs a value"},
		{[]string{"--label", "hermes-agent=1"}, "elsewhere's own"},
		{[]string{"--label", "elsewhere.identity=x"}, "elsewhere's own"},
		{[]string{"--label", "a=b", "--label", "a=c"}, "given twice"},
		{[]string{"--shm-size=1g", "--shm-size=2g"}, "given twice"},
		{[]string{"--network=a", "--net=b"}, "given twice"},
		{[]string{"--shm-size", "much"}, "not a size"},
		{[]string{"--gpus", "device=0,count=1"}, "exclude"},
		{[]string{"--gpus", "some"}, "not key=value"},
		{[]string{"--device", "fuse"}, "not a device"},
		{[]string{"--add-host", "a"}, "not NAME:ADDRESS"},
		{[]string{"--ulimit", "nofile"}, "not a limit"},
		{[]string{"-p", "x:y"}, "not a port"},
		{[]string{"--dns", "example"}, "not an address"},
		{[]string{"--mount", "type=bind,src=rel,dst=/x"}, "source=rel does not go with type=bind"},
		{[]string{"--mount", "type=npipe,src=/x,dst=/x"}, "type=npipe is unknown"},
		{[]string{"--mount", "type=tmpfs,dst=/x,nope=1"}, "nope is unknown"},
		{[]string{"--mount", "type=tmpfs,dst=/x,bind-propagation=shared"}, "does not go with type=tmpfs"},
		{[]string{"--mount", "type=bind,src=/usr"}, "write target=/PATH"},
		{[]string{"--tmpfs", "scratch"}, "write /PATH"},
		{[]string{"--label=a", ""}, "entry 2 (): it is empty"},
		{[]string{"--tmpfs", "/x:bogus"}, `the option "bogus" is unknown`},
		{[]string{"--tmpfs", "/x:rw,size=abc"}, `the option "size=abc" is unknown`},
		{[]string{"--tmpfs", "/proc"}, "nothing can be mounted on /proc"},
		{[]string{"--mount", "type=tmpfs,target=/sys"}, "nothing can be mounted on /sys"},
		{[]string{"-v", "vol:/proc/1"}, "nothing can be mounted on /proc/1"},
		{[]string{"--network", "container:x"}, "not accepted; name a network"},
		{[]string{"--network", "../x"}, "not a name of a network"},
		{[]string{"--hostname=-bad-"}, "not a name of a host"},
		{[]string{"--hostname", strings.Repeat("a", 70)}, "at most 63"},
		{[]string{"--tmpfs", "/x", "--tmpfs=/x:size=1m"}, "given twice"},
		{[]string{"-v", "/a"}, "no colon"},
		{[]string{"-e", "=x"}, "no name"},
		{[]string{"--hostname", ""}, "not a name of a host"},
	} {
		list, _ := json.Marshal(c.args)
		_, err := planned(t, opening(t, settings{"docker_extra_args": string(list)}), anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
		wantKind(t, err, driver.KindConfig, "docker_extra_args (", c.says)
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error tells a secret", c.args)
		}
	}
}

func TestUnsafeArgumentsWeakenWhatIsAllowedAndSayIt(t *testing.T) {
	b := mustPlan(t, opening(t, settings{"docker_allow_unsafe_args": "true", "docker_extra_args": `["--cap-add=net_admin", "--cap-add", "CAP_CHOWN", "--security-opt", "seccomp=unconfined", "--pid", "host", "--ipc=host"]`}))
	h := b.p.host
	if got := strings.Join(h.CapAdd, " "); got != "CHOWN DAC_OVERRIDE FOWNER NET_ADMIN SETGID SETUID" {
		t.Error(got)
	}
	if strings.Join(h.SecurityOpt, " ") != "no-new-privileges seccomp=unconfined" || h.PidMode != "host" || h.IpcMode != "host" || h.Privileged {
		t.Errorf("%+v", h)
	}
	if !strings.HasPrefix(b.p.featureState("isolation"), "degraded") || !b.p.told("cap-add, ipc, pid, security-opt") {
		t.Errorf("%q", b.p.notices)
	}
	b = mustPlan(t, opening(t, settings{"docker_allow_unsafe_args": "true", "docker_extra_args": "--privileged"}))
	if !b.p.host.Privileged || !strings.HasPrefix(b.p.featureState("capabilities"), "unsupported") {
		t.Errorf("%+v", b.p.host)
	}
	for _, args := range []string{"--pid=container:x", "--ipc=shareable"} {
		_, err := planned(t, opening(t, settings{"docker_allow_unsafe_args": "true", "docker_extra_args": args}), anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
		wantKind(t, err, driver.KindConfig, "only host")
	}
}

func TestSharedMemoryIsSetInOnePlace(t *testing.T) {
	_, err := planned(t, opening(t, settings{"docker_shm_size": "2g", "docker_extra_args": "--shm-size=1g"}), anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
	wantKind(t, err, driver.KindConfig, "docker_shm_size", "docker_extra_args")
	if b := mustPlan(t, opening(t, settings{"docker_extra_args": "--shm-size=7m"})); b.p.host.ShmSize != 7<<20 {
		t.Errorf("%d", b.p.host.ShmSize)
	}
	if b := mustPlan(t, opening(t, settings{"docker_shm_size": "none"})); b.p.host.ShmSize != 0 {
		t.Errorf("%d", b.p.host.ShmSize)
	}
}
