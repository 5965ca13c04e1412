//go:build linux

package modal

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// router is the command router: commands in a sandbox, what they read and print, snapshots.
type router struct {
	pb.UnimplementedTaskCommandRouterServer
	e *Emulator
}

// task finds the sandbox that a call is for, if its token is for that one.
func (r *router) task(ctx context.Context, id string) (*box, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get("authorization"); len(got) != 1 || taskOfToken(strings.TrimPrefix(got[0], "Bearer ")) != id {
		return nil, status.Error(codes.PermissionDenied, "the token is for another task")
	}
	return r.e.running(id)
}

func (r *router) exec(ctx context.Context, task, id string) (*running, error) {
	b, err := r.task(ctx, task)
	if err != nil {
		return nil, err
	}
	if err := b.pass(ctx); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	x, ok := b.execs[id]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "Exec %s not found", id)
	}
	return x, nil
}

// pass waits while what goes on in the sandbox hangs.
func (b *box) pass(ctx context.Context) error {
	if b.daemon.Pass(ctx) {
		return nil
	}
	return status.FromContextError(ctx.Err()).Err()
}

// TaskExecStart starts a command once for each exec id.
func (r *router) TaskExecStart(ctx context.Context, req *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	b, err := r.task(ctx, req.GetTaskId())
	if err == nil {
		err = b.pass(ctx)
	}
	if err != nil {
		return nil, err
	}
	if len(req.GetCommandArgs()) == 0 || req.GetExecId() == "" || tooLong(req.GetCommandArgs()) {
		return nil, status.Error(codes.InvalidArgument, "no command, no id, or too many arguments")
	}
	env := r.e.environment(req.GetSecretIds(), req.GetSecretSources())
	for name, value := range req.GetEnv() {
		env = append(env, name+"="+value)
	}
	var timeout *time.Duration
	if req.HasTimeoutSecs() {
		d := time.Duration(req.GetTimeoutSecs()) * time.Second
		timeout = &d
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.execs[req.GetExecId()]; again {
		return &pb.TaskExecStartResponse{}, nil
	}
	noOutput := req.GetStdoutConfig() == pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_DEVNULL
	var x *running
	if isTool(req.GetCommandArgs()) {
		x, err = b.beginTool(req.GetCommandArgs())
	} else {
		x, err = b.begin(req.GetCommandArgs(), env, req.GetWorkdir(), timeout, req.GetPtyInfo().GetEnabled(), noOutput)
	}
	switch {
	case errors.Is(err, errOver):
		return nil, status.Errorf(codes.NotFound, "Task %s: %v", b.task, err)
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	b.execs[req.GetExecId()] = x
	b.busy++
	b.watchIdle()
	go b.forget(req.GetExecId(), x)
	return &pb.TaskExecStartResponse{}, nil
}

// forgetAfter is for how long an ended command is known.
const forgetAfter = 30 * time.Second

func (b *box) forget(id string, x *running) {
	<-x.done
	b.mu.Lock()
	if b.busy--; !b.ending {
		b.watchIdle()
	}
	b.mu.Unlock()
	select {
	case <-time.After(forgetAfter):
	case <-b.ended:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.execs, id)
}

func (r *router) TaskExecWait(ctx context.Context, req *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	x, err := r.exec(ctx, req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-x.done:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-r.e.closing:
		return nil, status.Error(codes.Unavailable, "the emulator is closed")
	}
	if err := x.box.pass(ctx); err != nil {
		return nil, err
	}
	if x.signal != 0 {
		signal := int32(x.signal)
		return pb.TaskExecWaitResponse_builder{Signal: &signal}.Build(), nil
	}
	code := int32(x.code)
	return pb.TaskExecWaitResponse_builder{Code: &code}.Build(), nil
}

func (r *router) TaskExecStdioRead(req *pb.TaskExecStdioReadRequest, out grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	x, err := r.exec(out.Context(), req.GetTaskId(), req.GetExecId())
	if err != nil {
		return err
	}
	from := x.out
	if req.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		from = x.err
	}
	for offset := int64(req.GetOffset()); ; {
		data, err := from.read(out.Context(), offset)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = x.box.pass(out.Context())
		}
		if err != nil {
			return err
		}
		if err := out.Send(pb.TaskExecStdioReadResponse_builder{Data: data}.Build()); err != nil {
			return err
		}
		offset += int64(len(data))
	}
}

func (r *router) TaskExecStdinWrite(ctx context.Context, req *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	x, err := r.exec(ctx, req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	if err := x.in.take(ctx, req.GetOffset(), req.GetData(), req.GetEof()); err != nil {
		return nil, err
	}
	return &pb.TaskExecStdinWriteResponse{}, nil
}

func (r *router) TaskExecStdinStatus(ctx context.Context, req *pb.TaskExecStdinStatusRequest) (*pb.TaskExecStdinStatusResponse, error) {
	x, err := r.exec(ctx, req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	x.in.mu.Lock()
	defer x.in.mu.Unlock()
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: x.in.written, Closed: x.in.eof || x.in.closed}.Build(), nil
}

// TaskExecStdinWriteStream leaves stdin open where the stream breaks before its end was said.
func (r *router) TaskExecStdinWriteStream(in grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse]) error {
	var x *running
	var offset uint64
	for {
		m, err := in.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.HasStart():
			start := m.GetStart()
			if x, err = r.exec(in.Context(), start.GetTaskId(), start.GetExecId()); err != nil {
				return err
			}
			offset = start.GetOffset()
		case x != nil && x.box.pass(in.Context()) != nil:
			return status.FromContextError(in.Context().Err()).Err()
		case x == nil:
			return status.Error(codes.InvalidArgument, "the stream has no start")
		case m.HasEnd():
			if err := x.in.take(in.Context(), offset, nil, true); err != nil {
				return err
			}
			return in.SendAndClose(&pb.TaskExecStdinWriteStreamResponse{})
		default:
			if err := x.in.take(in.Context(), offset, m.GetData(), false); err != nil {
				return err
			}
			offset += uint64(len(m.GetData()))
		}
	}
}

// TaskSnapshotFilesystem copies a sandbox's files; once for each snapshot id.
func (r *router) TaskSnapshotFilesystem(ctx context.Context, req *pb.TaskSnapshotFilesystemRequest) (*pb.TaskSnapshotFilesystemResponse, error) {
	b, err := r.task(ctx, req.GetTaskId())
	if err != nil {
		return nil, err
	}
	e := r.e
	e.mu.Lock()
	done := e.snapshots[req.GetSnapshotId()]
	e.mu.Unlock()
	if done != "" {
		return pb.TaskSnapshotFilesystemResponse_builder{ImageId: done}.Build(), nil
	}
	ttl := req.GetTtlSeconds()
	if !req.HasTtlSeconds() || ttl == 0 || ttl < -1 {
		return nil, status.Error(codes.InvalidArgument, "ttl_seconds must be positive, or -1")
	}
	copied, err := b.machine.Snapshot(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return nil, status.Error(codes.Internal, err.Error())
	}
	img := &image{id: newID("im-", 22), machine: copied, own: true}
	if ttl > 0 {
		img.expires = time.Now().Add(time.Duration(ttl) * time.Second)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.images[img.id], e.snapshots[req.GetSnapshotId()] = img, img.id
	return pb.TaskSnapshotFilesystemResponse_builder{ImageId: img.id}.Build(), nil
}

// SandboxStdioReadV2 reads what the sandbox's own command prints.
func (r *router) SandboxStdioReadV2(req *pb.SandboxStdioReadV2Request, out grpc.ServerStreamingServer[pb.SandboxStdioReadV2Response]) error {
	b, err := r.task(out.Context(), req.GetTaskId())
	if err != nil {
		return err
	}
	if b.entry == nil {
		return nil
	}
	from := b.entry.out
	if req.GetFileDescriptor() == pb.SandboxStdioFileDescriptor_SANDBOX_STDIO_FILE_DESCRIPTOR_STDERR {
		from = b.entry.err
	}
	for offset := int64(req.GetOffset()); ; {
		data, err := from.read(out.Context(), offset)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.Send(pb.SandboxStdioReadV2Response_builder{Data: data, StartingOffset: uint64(offset)}.Build()); err != nil {
			return err
		}
		offset += int64(len(data))
	}
}

// SandboxStdinWriteV2 writes to the sandbox's own command.
func (r *router) SandboxStdinWriteV2(ctx context.Context, req *pb.SandboxStdinWriteV2Request) (*pb.SandboxStdinWriteV2Response, error) {
	b, err := r.task(ctx, req.GetTaskId())
	if err != nil {
		return nil, err
	}
	if b.entry == nil {
		return nil, errStdinClosed
	}
	if err := b.entry.in.take(ctx, req.GetOffset(), req.GetData(), req.GetEof()); err != nil {
		return nil, err
	}
	return &pb.SandboxStdinWriteV2Response{}, nil
}
