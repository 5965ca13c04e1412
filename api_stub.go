package elsewhere

// Signatures that are being built; this file goes when they are.
//
//	func OpenSandbox(ctx context.Context, cfg *config.Config, opts *SandboxOptions) (*Sandbox, error)
//	func Open(ctx context.Context, cfg *config.Config, opts *SandboxOptions) (*Session, error) // throw-away session; Close closes the sandbox too
//	func (sb *Sandbox) Session(ctx context.Context, name string) (*Session, error)  // "" = throw-away
//	func (sb *Sandbox) Info() driver.Info
//	func (sb *Sandbox) Backend() string
//	func (sb *Sandbox) Task() string
//	func (sb *Sandbox) Close(ctx context.Context) error
//	func (s *Session) Run(ctx context.Context, command string, opts *RunOptions) (*Result, error)
//	func (s *Session) Flush(ctx context.Context) error  // waits until the state of ended calls is written
//	func (s *Session) Cwd() string
//	func (s *Session) Close(ctx context.Context) error
//	func (s *Session) ReadFile(ctx context.Context, path string) ([]byte, error)
//	func (s *Session) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode) error
//	func Sessions(home string) ([]SessionInfo, error)         // named sessions on disk
//	func RemoveSession(ctx, home, backend, task, name string) error
//	func (r *Result) JSON ... MarshalJSON per SPEC 7.3
