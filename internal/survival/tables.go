package survival

// Tables are all tables, in the order of the page.
func Tables() []*Table {
	return []*Table{local(), docker(), singularity(), ssh(), modal(), daytona(), vercel()}
}

// What is done to every backend alike.
const (
	nextCall   = "another call of the same session"
	newProcess = "the process closes everything and ends, and another one opens the same task and session"
	crash      = "the process gets KILL, and another one opens the same task and session"
	aheadGoes  = "nothing is called until the shell that was started ahead has left (`spawn_ahead_idle`); elsewhere ends no sandbox that is only idle"
	stop       = "`elsewhere sandbox stop`, then another opening"
)

const emulated = "an emulator of the service, which the vendor's own SDK accepts: what the service itself does is not verified"

func local() *Table {
	return &Table{
		Backend: "local",
		Seen:    "this machine",
		Events: map[Event]string{
			NextCall: nextCall, NewProcess: newProcess, Crash: crash, Idle: aheadGoes,
			Stop:        "there is no sandbox that could be stopped",
			Restart:     "there is no sandbox; a reboot of the machine ends all processes and is not verified",
			EngineCrash: "there is no engine",
		},
		rows: map[Thing]string{
			//          next | new | idle | stop | restart | crash | engine
			Variables: "yes  | yes | yes  | —    | —       | yes   | —",
			Functions: "yes  | yes | yes  | —    | —       | yes   | —",
			Directory: "yes  | yes | yes  | —    | —       | yes   | —",
			Umask:     "yes  | yes | yes  | —    | —       | yes   | —",
			OneCall:   "no   | no  | no   | —    | —       | no    | —",
			Forwarded: "yes  | yes | yes  | —    | —       | yes   | —",
			Job:       "yes  | yes | yes  | —    | —       | yes   | —",
			KeptJob:   "yes  | yes | yes  | —    | —       | yes   | —",
			JobOutput: "yes  | yes | yes  | —    | —       | yes   | —",
			Child:     "yes  | yes | yes  | —    | —       | yes   | —",
			Home:      "yes  | yes | yes  | —    | —       | yes   | —",
			Workspace: "—    | —   | —    | —    | —       | —     | —",
			Temp:      "yes  | yes | yes  | —    | —       | yes   | —",
			System:    "—    | —   | —    | —    | —       | —     | —",
			Skills:    "—    | —   | —    | —    | —       | —     | —",
			Mount:     "—    | —   | —    | —    | —       | —     | —",
			Network:   "—    | —   | —    | —    | —       | —     | —",
		},
	}
}

func docker() *Table {
	return &Table{
		Backend:   "docker",
		Seen:      "Docker; the crash also by KILL of a dockerd of the test's own",
		Settings:  map[string]string{"docker_network": "false", "docker_volumes": `["{HOST}:/mnt/yours:ro"]`},
		Workspace: "/workspace", MountAt: "/mnt/yours", SkillsMounted: true,
		Events: map[Event]string{
			NextCall: nextCall, NewProcess: newProcess, Crash: crash, Idle: aheadGoes, Stop: stop,
			Restart:     "`docker restart` under an open sandbox",
			EngineCrash: "under an open sandbox dockerd, or the container's first process, gets KILL",
		},
		rows: map[Thing]string{
			//          next | new | idle | stop | restart | crash | engine
			Variables: "yes  | yes | yes  | no   | no      | yes   | no",
			Functions: "yes  | yes | yes  | no   | no      | yes   | no",
			Directory: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Umask:     "yes  | yes | yes  | no   | no      | yes   | no",
			OneCall:   "no   | no  | no   | no   | no      | no    | no",
			Forwarded: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Job:       "yes  | yes | yes  | no   | no      | yes   | no",
			KeptJob:   "yes  | yes | yes  | no   | no      | yes   | no",
			JobOutput: "yes  | yes | yes  | no   | no      | yes   | no",
			Child:     "yes  | yes | yes  | no   | no      | yes   | no",
			Home:      "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Workspace: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Temp:      "yes  | yes | yes  | no   | no      | yes   | no",
			System:    "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Skills:    "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Mount:     "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Network:   "yes  | yes | yes  | yes  | yes     | yes   | yes",
		},
	}
}

func singularity() *Table {
	return &Table{
		Backend:       "singularity",
		Seen:          "Apptainer",
		Settings:      map[string]string{"singularity_network": "false"},
		SkillsMounted: true,
		Events: map[Event]string{
			NextCall: nextCall, NewProcess: newProcess, Crash: crash, Idle: aheadGoes, Stop: stop,
			Restart:     "`apptainer instance stop` under an open sandbox, whose next call starts it again",
			EngineCrash: "the instance's first process gets KILL under an open sandbox: there is no daemon that could crash",
		},
		rows: map[Thing]string{
			//          next | new | idle | stop | restart | crash | engine
			Variables: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Functions: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Directory: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Umask:     "yes  | yes | yes  | yes  | yes     | yes   | yes",
			OneCall:   "no   | no  | no   | no   | no      | no    | no",
			Forwarded: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Job:       "yes  | yes | yes  | no   | no      | yes   | no",
			KeptJob:   "yes  | yes | yes  | no   | no      | yes   | no",
			JobOutput: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Child:     "yes  | yes | yes  | no   | no      | yes   | no",
			Home:      "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Workspace: "—    | —   | —    | —    | —       | —     | —",
			Temp:      "yes  | yes | yes  | no   | no      | yes   | no",
			System:    "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Skills:    "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Mount:     "—    | —   | —    | —    | —       | —     | —",
			Network:   "yes  | yes | yes  | yes  | yes     | yes   | yes",
		},
	}
}

func ssh() *Table {
	return &Table{
		Backend: "ssh",
		Seen:    "OpenSSH",
		Events: map[Event]string{
			NextCall: nextCall, NewProcess: newProcess, Crash: crash, Idle: aheadGoes,
			Stop:        "there is no sandbox that could be stopped",
			Restart:     "there is no sandbox; a reboot of the machine there ends all processes, may empty /tmp, and is not verified",
			EngineCrash: "the connection's master and the server's processes of it get KILL under an open sandbox",
		},
		rows: map[Thing]string{
			//          next | new | idle | stop | restart | crash | engine
			Variables: "yes  | yes | yes  | —    | —       | yes   | yes",
			Functions: "yes  | yes | yes  | —    | —       | yes   | yes",
			Directory: "yes  | yes | yes  | —    | —       | yes   | yes",
			Umask:     "yes  | yes | yes  | —    | —       | yes   | yes",
			OneCall:   "no   | no  | no   | —    | —       | no    | no",
			Forwarded: "yes  | yes | yes  | —    | —       | yes   | yes",
			Job:       "yes  | yes | yes  | —    | —       | yes   | yes",
			KeptJob:   "yes  | yes | yes  | —    | —       | yes   | yes",
			JobOutput: "yes  | yes | yes  | —    | —       | yes   | yes",
			Child:     "yes  | yes | yes  | —    | —       | yes   | yes",
			Home:      "yes  | yes | yes  | —    | —       | yes   | yes",
			Workspace: "—    | —   | —    | —    | —       | —     | —",
			Temp:      "yes  | yes | yes  | —    | —       | yes   | yes",
			System:    "—    | —   | —    | —    | —       | —     | —",
			Skills:    "yes  | yes | yes  | —    | —       | yes   | yes",
			Mount:     "—    | —   | —    | —    | —       | —     | —",
			Network:   "—    | —   | —    | —    | —       | —     | —",
		},
	}
}

func modal() *Table {
	return &Table{
		Backend: "modal",
		Seen:    emulated,
		Events: map[Event]string{
			NextCall: nextCall, NewProcess: newProcess, Crash: crash, Stop: stop,
			Idle:        "the process closes everything, the service ends the sandbox (`container_idle_timeout`), and another opening restores it",
			Restart:     "the service restarts none: it is ended and another one starts from the stored files",
			EngineCrash: "the service loses the sandbox while it is open, before anything was stored; what was stored earlier comes back",
		},
		rows: map[Thing]string{
			//          next | new | idle | stop | restart | crash | engine
			Variables: "yes  | yes | yes  | yes  | —       | yes   | no, as last stored",
			Functions: "yes  | yes | yes  | yes  | —       | yes   | no, as last stored",
			Directory: "yes  | yes | yes  | yes  | —       | yes   | yes",
			Umask:     "yes  | yes | yes  | yes  | —       | yes   | no, as last stored",
			OneCall:   "no   | no  | no   | no   | —       | no    | no",
			Forwarded: "yes  | yes | yes  | yes  | —       | yes   | yes",
			Job:       "yes  | yes | no   | no   | —       | yes   | no",
			KeptJob:   "yes  | yes | no   | no   | —       | yes   | no",
			JobOutput: "yes  | yes | yes  | yes  | —       | yes   | no, as last stored",
			Child:     "yes  | yes | no   | no   | —       | yes   | no",
			Home:      "yes  | yes | yes  | yes  | —       | yes   | no, as last stored",
			Workspace: "—    | —   | —    | —    | —       | —     | —",
			Temp:      "yes  | yes | yes  | yes  | —       | yes   | no, as last stored",
			System:    "yes  | yes | yes  | yes  | —       | yes   | no, as last stored",
			Skills:    "yes  | yes | yes  | yes  | —       | yes   | yes",
			Mount:     "—    | —   | —    | —    | —       | —     | —",
			Network:   "not verified | not verified | not verified | not verified | — | not verified | not verified",
		},
	}
}

func daytona() *Table {
	return &Table{
		Backend: "daytona",
		Seen:    emulated,
		Events: map[Event]string{
			NextCall: nextCall, NewProcess: newProcess + " (something runs in it, so that the close leaves it running)", Crash: crash, Stop: stop,
			Idle:        "the process closes everything, the service stops the sandbox (`daytona_auto_stop_interval`), and another opening starts it",
			Restart:     "the service stops the sandbox while it is open, and the next call starts it",
			EngineCrash: "the service loses the sandbox with its files while it is open",
		},
		rows: map[Thing]string{
			//          next | new | idle | stop | restart | crash | engine
			Variables: "yes  | yes | yes  | yes  | yes     | yes   | no",
			Functions: "yes  | yes | yes  | yes  | yes     | yes   | no",
			Directory: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Umask:     "yes  | yes | yes  | yes  | yes     | yes   | no",
			OneCall:   "no   | no  | no   | no   | no      | no    | no",
			Forwarded: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Job:       "yes  | yes | no   | no   | no      | yes   | no",
			KeptJob:   "yes  | yes | no   | no   | no      | yes   | no",
			JobOutput: "yes  | yes | yes  | yes  | yes     | yes   | no",
			Child:     "yes  | yes | no   | no   | no      | yes   | no",
			Home:      "yes  | yes | yes  | yes  | yes     | yes   | no",
			Workspace: "—    | —   | —    | —    | —       | —     | —",
			Temp:      "yes  | yes | yes  | yes  | yes     | yes   | no",
			System:    "yes  | yes | yes  | yes  | yes     | yes   | no",
			Skills:    "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Mount:     "—    | —   | —    | —    | —       | —     | —",
			Network:   "not verified | not verified | not verified | not verified | not verified | not verified | not verified",
		},
	}
}

func vercel() *Table {
	return &Table{
		Backend:   "vercel",
		Seen:      emulated,
		Workspace: "/vercel/sandbox",
		Events: map[Event]string{
			NextCall: nextCall, NewProcess: newProcess + " (something runs in it, so that the close leaves it running)", Crash: crash, Stop: stop,
			Idle:        "the process closes everything, the sandbox's time is over (`vercel_lifetime`), and another opening starts it",
			Restart:     "the sandbox's time ends while it is open and another client starts it: the service stores its files in between",
			EngineCrash: "the service aborts the sandbox while it is open, before anything was stored; what was stored earlier comes back",
		},
		rows: map[Thing]string{
			//          next | new | idle | stop | restart | crash | engine
			Variables: "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			Functions: "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			Directory: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Umask:     "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			OneCall:   "no   | no  | no   | no   | no      | no    | no",
			Forwarded: "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Job:       "yes  | yes | no   | no   | no      | yes   | no",
			KeptJob:   "yes  | yes | no   | no   | no      | yes   | no",
			JobOutput: "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			Child:     "yes  | yes | no   | no   | no      | yes   | no",
			Home:      "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			Workspace: "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			Temp:      "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			System:    "yes  | yes | yes  | yes  | yes     | yes   | no, as last stored",
			Skills:    "yes  | yes | yes  | yes  | yes     | yes   | yes",
			Mount:     "—    | —   | —    | —    | —       | —     | —",
			Network:   "—    | —   | —    | —    | —       | —     | —",
		},
	}
}
