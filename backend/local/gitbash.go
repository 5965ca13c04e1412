package local

import (
	"fmt"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

const gitBashHint = "install Git for Windows (https://git-scm.com/download/win) or set HERMES_GIT_BASH_PATH to its bash.exe"

// findGitBash looks for the bash of Git for Windows: the setting, what Hermes installed, the usual places of the
// installer, then PATH. On PATH the programs named bash.exe in System32 and WindowsApps are passed over: they start WSL
// or the Store (NousResearch/hermes-agent#47837). Usable tells whether a file is a bash that works; it is asked once for
// each, in this order, and its error says why not.
func findGitBash(setting string, vars *environment, isFile func(string) bool, usable func(string) error) (string, error) {
	if setting != "" {
		file := windowsPath(setting)
		if !isFile(file) {
			return "", failure(driver.KindConfig, "git_bash_path (HERMES_GIT_BASH_PATH) names %s, which is no file; %s", file, gitBashHint)
		}
		if err := usable(file); err != nil {
			return "", failure(driver.KindConfig, "git_bash_path (HERMES_GIT_BASH_PATH) names %s, which cannot be used: %w", file, err)
		}
		return file, nil
	}
	var found []string
	for _, file := range gitBashPlaces(vars) {
		if !isFile(file) {
			continue
		}
		err := usable(file)
		if err == nil {
			return file, nil
		}
		found = append(found, fmt.Sprintf("%s: %v", file, err))
	}
	if len(found) > 0 {
		return "", failure(driver.KindUnavailable, "no Git Bash that works (%s); %s", strings.Join(found, "; "), gitBashHint)
	}
	return "", failure(driver.KindUnavailable, "no Git Bash on this machine; %s", gitBashHint)
}

func gitBashPlaces(vars *environment) []string {
	var places []string
	add := func(root string, below ...string) {
		if root == "" {
			return
		}
		for _, file := range below {
			places = append(places, strings.TrimRight(root, `\/`)+`\`+file)
		}
	}
	add(vars.get("LOCALAPPDATA"), `hermes\git\bin\bash.exe`, `hermes\git\usr\bin\bash.exe`)
	for _, name := range []string{"ProgramW6432", "ProgramFiles", "ProgramFiles(x86)"} {
		add(vars.get(name), `Git\bin\bash.exe`, `Git\usr\bin\bash.exe`)
	}
	add(vars.get("LOCALAPPDATA"), `Programs\Git\bin\bash.exe`, `Programs\Git\usr\bin\bash.exe`)
	for _, dir := range strings.Split(vars.get("PATH"), ";") {
		dir = strings.TrimRight(strings.Trim(dir, `" `), `\/`)
		lower := strings.ToLower(dir)
		switch last := lower[strings.LastIndexAny(lower, `\/`)+1:]; {
		case dir == "", last == "system32", last == "syswow64", last == "sysnative", last == "windowsapps":
			continue
		case last == "cmd" && strings.Contains(lower, "git"):
			// The installer puts Git\cmd on PATH, where git.exe is and bash.exe is not.
			add(dir[:len(dir)-len(`\cmd`)], `bin\bash.exe`)
		}
		add(dir, "bash.exe")
	}
	return places
}

// judgeProbe says why a bash cannot be used, from what it made of `uname -s`, a program of MSYS; nil where it can.
func judgeProbe(stdout, stderr string, err error) error {
	system := strings.ToUpper(strings.TrimSpace(stdout))
	switch {
	case err == nil && (strings.HasPrefix(system, "MINGW") || strings.HasPrefix(system, "MSYS") || strings.HasPrefix(system, "CYGWIN")):
		return nil
	case strings.HasPrefix(system, "LINUX"):
		return fmt.Errorf("it is the bash of WSL, which sees other files")
	case relocated(stderr + stdout):
		return fmt.Errorf("its programs cannot start because Windows moves their memory (Mandatory ASLR): in Windows Security, App & browser control, Exploit protection, Program settings, add the programs in Git\\usr\\bin and switch off \"Force randomization for images\" for them, or run as administrator: Get-Item 'C:\\Program Files\\Git\\usr\\bin\\*.exe' | %%{ Set-ProcessMitigation -Name $_.Name -Disable ForceRelocateImages }")
	case err != nil:
		return fmt.Errorf("it does not start programs: %w %s", err, firstLine(stderr))
	}
	return fmt.Errorf("it says that it runs on %q", firstLine(stdout))
}

// relocated recognises what MSYS programs print where Mandatory ASLR keeps them from forking.
func relocated(text string) bool {
	text = strings.ToLower(text)
	for _, sign := range []string{
		"cygheap base mismatch", "child_info_fork::abort", "address space needed by", "couldn't reserve space",
		"unable to remap", "rebaseall", "dofork: child", "0xc0000142",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

// msysEnvironment adds what a bash of Git for Windows needs: its own programs on PATH, and, unless the user set them,
// the variables that keep MSYS from rewriting arguments such as /FO into paths (NousResearch/hermes-agent#56705).
func msysEnvironment(env *environment, bash string, isDir func(string) bool) {
	for name, value := range map[string]string{"MSYS_NO_PATHCONV": "1", "MSYS2_ARG_CONV_EXCL": "*"} {
		if !env.has(name) {
			env.set(name, value)
		}
	}
	root := bash
	for _, below := range []string{`\usr\bin\bash.exe`, `\bin\bash.exe`} {
		if strings.HasSuffix(strings.ToLower(root), below) {
			root = root[:len(root)-len(below)]
			break
		}
	}
	if root == bash {
		return
	}
	path := strings.Split(env.get("PATH"), ";")
	var first []string
	for _, below := range []string{`\mingw64\bin`, `\mingw32\bin`, `\usr\bin`, `\bin`} {
		dir := root + below
		known := false
		for _, entry := range path {
			known = known || strings.EqualFold(strings.TrimRight(entry, `\`), dir)
		}
		if !known && isDir(dir) {
			first = append(first, dir)
		}
	}
	env.set("PATH", strings.Join(append(first, path...), ";"))
}
