//go:build linux

package modal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// control is the control plane: apps, images, sandboxes.
type control struct {
	pb.UnimplementedModalClientServer
	e *Emulator
}

func (c *control) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: authToken}.Build(), nil
}

func (c *control) EnvironmentGetOrCreate(_ context.Context, r *pb.EnvironmentGetOrCreateRequest) (*pb.EnvironmentGetOrCreateResponse, error) {
	return pb.EnvironmentGetOrCreateResponse_builder{EnvironmentId: "en-emulator", Metadata: pb.EnvironmentMetadata_builder{
		Name: "main", Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: "2025.06"}.Build(),
	}.Build()}.Build(), nil
}

func (c *control) AppGetOrCreate(_ context.Context, r *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	id, ok := e.apps[r.GetAppName()]
	if !ok {
		if r.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
			return nil, status.Errorf(codes.NotFound, "App '%s' not found", r.GetAppName())
		}
		id = newID("ap-", 22)
		e.apps[r.GetAppName()] = id
	}
	return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
}

func (c *control) SecretGetOrCreate(_ context.Context, r *pb.SecretGetOrCreateRequest) (*pb.SecretGetOrCreateResponse, error) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.GetDeploymentName() != "" {
		if _, ok := e.secrets[r.GetDeploymentName()]; !ok {
			return nil, status.Errorf(codes.NotFound, "Secret '%s' not found", r.GetDeploymentName())
		}
		return pb.SecretGetOrCreateResponse_builder{SecretId: r.GetDeploymentName()}.Build(), nil
	}
	id := newID("st-", 22)
	e.secrets[id] = r.GetEnvDict()
	return pb.SecretGetOrCreateResponse_builder{SecretId: id}.Build(), nil
}

// FailingTag is what the name of an image has in it whose build fails.
const FailingTag = "no-such-image"

// ImageGetOrCreate takes any image of a registry to be the tree: nothing is ever fetched. It is built when ImageJoinStreaming
// was asked.
func (c *control) ImageGetOrCreate(_ context.Context, r *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	commands := r.GetImage().GetDockerfileCommands()
	if len(commands) != 1 || !strings.HasPrefix(commands[0], "FROM ") {
		return nil, status.Error(codes.Unimplemented, "the emulator builds no layers")
	}
	from := strings.TrimPrefix(commands[0], "FROM ")
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if bases := r.GetImage().GetBaseImages(); from == "base" && len(bases) == 1 {
		from = bases[0].GetImageId()
	}
	if img, ok := e.images[from]; ok && !img.dead() {
		return pb.ImageGetOrCreateResponse_builder{ImageId: img.id, Result: success()}.Build(), nil
	}
	for _, img := range e.images {
		if slices.Contains(img.env, "EMULATOR_TAG="+from) {
			return pb.ImageGetOrCreateResponse_builder{ImageId: img.id, Result: img.result()}.Build(), nil
		}
	}
	img := &image{id: newID("im-", 22), machine: e.host.Base(), env: []string{"EMULATOR_TAG=" + from}}
	if strings.Contains(from, FailingTag) {
		img.broken = "manifest unknown: " + from
	}
	e.images[img.id] = img
	return pb.ImageGetOrCreateResponse_builder{ImageId: img.id}.Build(), nil
}

func (i *image) dead() bool {
	return i.gone || !i.expires.IsZero() && time.Now().After(i.expires)
}

func (i *image) result() *pb.GenericResult {
	if i.broken != "" {
		return pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: i.broken}.Build()
	}
	return success()
}

func success() *pb.GenericResult {
	return pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build()
}

func (c *control) ImageJoinStreaming(r *pb.ImageJoinStreamingRequest, out grpc.ServerStreamingServer[pb.ImageJoinStreamingResponse]) error {
	c.e.mu.Lock()
	img, ok := c.e.images[r.GetImageId()]
	c.e.mu.Unlock()
	if !ok {
		return status.Errorf(codes.NotFound, "Image '%s' not found", r.GetImageId())
	}
	return out.Send(pb.ImageJoinStreamingResponse_builder{Result: img.result(), EntryId: "1-0"}.Build())
}

func (c *control) ImageFromId(_ context.Context, r *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) {
	if _, err := c.e.image(r.GetImageId()); err != nil {
		return nil, err
	}
	return pb.ImageFromIdResponse_builder{ImageId: r.GetImageId()}.Build(), nil
}

// image gives one that can be used.
func (e *Emulator) image(id string) (*image, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	img, ok := e.images[id]
	if !ok || img.dead() {
		return nil, status.Errorf(codes.NotFound, "Image '%s' not found", id)
	}
	return img, nil
}

func (c *control) ImageDelete(_ context.Context, r *pb.ImageDeleteRequest) (*emptypb.Empty, error) {
	img, err := c.e.image(r.GetImageId())
	if err != nil {
		return nil, err
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	img.gone = true
	return &emptypb.Empty{}, nil
}

// environment are the variables that a request brings inline or by secrets.
func (e *Emulator) environment(ids []string, sources []*pb.SecretSource) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]string{}
	for _, id := range ids {
		maps.Copy(all, e.secrets[id])
	}
	for _, s := range sources {
		if s.HasSecretId() {
			maps.Copy(all, e.secrets[s.GetSecretId()])
		}
		maps.Copy(all, s.GetEnv().GetContents())
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}

func (c *control) SandboxCreateV2(ctx context.Context, r *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	if r.GetDefinition().GetResources().GetGpuConfig().GetCount() > 0 {
		return nil, status.Error(codes.InvalidArgument, "GPUs are not supported")
	}
	b, err := c.e.create(ctx, true, r.GetAppId(), r.GetDefinition(), c.e.environment(r.GetDefinition().GetSecretIds(), r.GetSecretSources()), r.GetTags())
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateV2Response_builder{
		SandboxId: b.id, TaskId: b.task,
		CommandRouterAccess: pb.CommandRouterAccess_builder{Jwt: routerToken(b.task), Url: c.e.routerURL()}.Build(),
	}.Build(), nil
}

func (c *control) SandboxCreate(ctx context.Context, r *pb.SandboxCreateRequest) (*pb.SandboxCreateResponse, error) {
	b, err := c.e.create(ctx, false, r.GetAppId(), r.GetDefinition(), c.e.environment(r.GetDefinition().GetSecretIds(), nil), r.GetTags())
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateResponse_builder{SandboxId: b.id}.Build(), nil
}

func (c *control) SandboxGetTaskId(ctx context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	b, err := c.e.box(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	answer := pb.SandboxGetTaskIdResponse_builder{TaskId: &b.task}
	if over, result := b.over(); over {
		answer.TaskResult = result
	}
	return answer.Build(), nil
}

func (c *control) SandboxGetTaskIdV2(ctx context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	return c.SandboxGetTaskId(ctx, r)
}

func (c *control) SandboxGetCommandRouterAccess(_ context.Context, r *pb.SandboxGetCommandRouterAccessRequest) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	b, err := c.e.box(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if over, _ := b.over(); over {
		return nil, status.Errorf(codes.NotFound, "Sandbox %s has finished", b.id)
	}
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: routerToken(b.task), Url: c.e.routerURL()}.Build(), nil
}

func (c *control) TaskGetCommandRouterAccess(_ context.Context, r *pb.TaskGetCommandRouterAccessRequest) (*pb.TaskGetCommandRouterAccessResponse, error) {
	b, err := c.e.running(r.GetTaskId())
	if err != nil {
		return nil, err
	}
	return pb.TaskGetCommandRouterAccessResponse_builder{Jwt: routerToken(b.task), Url: c.e.routerURL()}.Build(), nil
}

func (c *control) SandboxWait(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	b, err := c.e.box(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(time.Duration(float64(r.GetTimeout()) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-b.said:
	case <-timer.C:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-c.e.closing:
		return nil, status.Error(codes.Unavailable, "the emulator is closed")
	}
	answer := pb.SandboxWaitResponse_builder{Metadata: pb.SandboxHandleMetadata_builder{AppId: b.app}.Build()}
	if over, result := b.over(); over {
		answer.Result = result
	}
	return answer.Build(), nil
}

func (c *control) SandboxWaitV2(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.SandboxWait(ctx, r)
}

func (c *control) SandboxTerminate(_ context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	b, err := c.e.box(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if err := b.end(pb.GenericResult_GENERIC_STATUS_TERMINATED); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pb.SandboxTerminateResponse{}, nil
}

func (c *control) SandboxTerminateV2(ctx context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.SandboxTerminate(ctx, r)
}

// fromName finds a sandbox of a generation by its name.
func (c *control) fromName(v2 bool, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	var found *box
	for _, b := range e.boxes {
		over, _ := b.over()
		if b.name != r.GetSandboxName() || b.app != e.apps[r.GetAppName()] || b.v2 != v2 || over && !r.GetIncludeTerminated() {
			continue
		}
		if found == nil || !over || b.created.After(found.created) {
			found = b
		}
	}
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "Sandbox '%s' not found", r.GetSandboxName())
	}
	return pb.SandboxGetFromNameResponse_builder{SandboxId: found.id}.Build(), nil
}

func (c *control) SandboxGetFromName(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(false, r)
}

func (c *control) SandboxGetFromNameV2(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(true, r)
}

// listPage is how many sandboxes one answer holds.
const listPage = 3

func (c *control) list(r *pb.SandboxListRequest, v1 bool) *pb.SandboxListResponse {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*box
	for _, b := range e.boxes {
		over, _ := b.over()
		before := r.GetBeforeTimestamp()
		if r.GetAppId() != "" && b.app != r.GetAppId() || over && !r.GetIncludeFinished() || v1 && b.v2 || before > 0 && b.createdAt() >= before {
			continue
		}
		if !slices.ContainsFunc(r.GetTags(), func(t *pb.SandboxTag) bool { return b.tags[t.GetTagName()] != t.GetTagValue() }) {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b *box) int { return b.created.Compare(a.created) })
	var page []*pb.SandboxInfo
	for _, b := range all[:min(len(all), listPage)] {
		page = append(page, pb.SandboxInfo_builder{
			Id: b.id, CreatedAt: b.createdAt(), AppId: b.app, Tags: b.tagList(), Name: b.name, ImageId: b.image, TimeoutSecs: uint32(b.lifetime / time.Second),
		}.Build())
	}
	return pb.SandboxListResponse_builder{Sandboxes: page}.Build()
}

func (c *control) SandboxList(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(r, true), nil
}

func (c *control) SandboxListV2(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(r, false), nil
}

func (c *control) SandboxTagsSet(_ context.Context, r *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	b, err := c.e.box(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	tags, err := tagMap(r.GetTags())
	if err != nil {
		return nil, err
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	b.tags = tags
	return &emptypb.Empty{}, nil
}

func (c *control) SandboxTagsSetV2(ctx context.Context, r *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return c.SandboxTagsSet(ctx, r)
}

func (c *control) SandboxTagsGet(_ context.Context, r *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	b, err := c.e.box(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return pb.SandboxTagsGetResponse_builder{Tags: b.tagList()}.Build(), nil
}

func (c *control) SandboxTagsGetV2(ctx context.Context, r *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return c.SandboxTagsGet(ctx, r)
}

// tagSize is how long a name or a value may be: the emulator's guess, and short so that nobody relies on more.
const tagSize = 63

func tagMap(list []*pb.SandboxTag) (map[string]string, error) {
	tags := map[string]string{}
	for _, t := range list {
		if t.GetTagName() == "" || len(t.GetTagName()) > tagSize || len(t.GetTagValue()) > tagSize {
			return nil, status.Errorf(codes.InvalidArgument, "the tag %q is too long or has no name", t.GetTagName())
		}
		tags[t.GetTagName()] = t.GetTagValue()
	}
	return tags, nil
}

var errOver = errors.New("the sandbox has finished")

// box finds a sandbox, also one that has ended.
func (e *Emulator) box(id string) (*box, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.boxes[id]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "Sandbox %s not found", id)
	}
	return b, nil
}

// running finds the sandbox of a task that has not ended.
func (e *Emulator) running(task string) (*box, error) {
	e.mu.Lock()
	b, ok := e.tasks[task]
	e.mu.Unlock()
	if !ok {
		return nil, status.Errorf(codes.NotFound, "Task %s not found", task)
	}
	if over, _ := b.over(); over {
		return nil, status.Errorf(codes.NotFound, "Task %s: %v", task, errOver)
	}
	return b, nil
}
