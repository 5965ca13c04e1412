package redact

import (
	"strings"
	"testing"
	"time"
)

// The tokens here are put together, so that no scanner takes this file for a leak.
var (
	letters = strings.Repeat("aB3dE6gH9j", 10)
	github  = "ghp" + "_" + letters[:36]
	openai  = "sk" + "-proj-" + letters[:40]
	aws     = "AKIA" + strings.Repeat("Q7", 8)
	google  = "AIza" + letters[:35]
	slack   = "xoxb" + "-123456789012-" + letters[:24]
	gitlab  = "glpat" + "-" + letters[:20]
	npm     = "npm" + "_" + letters[:36]
	hugging = "hf" + "_" + letters[:34]
	jwt     = "eyJ" + letters[:20] + ".eyJ" + letters[:30] + "." + letters[:43]
	pem     = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEow\n" + letters + "\n-----END RSA PRIVATE " + "KEY-----"
)

func TestTextMasks(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"an assignment before a command", "TOKEN=hunter22 ./deploy", "TOKEN=[redacted] ./deploy"},
		{"a password", "export DB_PASSWORD=hunter2; run", "export DB_PASSWORD=[redacted]; run"},
		{"a password of digits", "PASSWORD=1234 run", "PASSWORD=[redacted] run"},
		{"a name without separators", "PGPASSWORD=hunter2 psql", "PGPASSWORD=[redacted] psql"},
		{"the shorter word", "MYSQL_PWD=hunter2 mysql", "MYSQL_PWD=[redacted] mysql"},
		{"an API key", "OPENAI_API_KEY=abc run", "OPENAI_API_KEY=[redacted] run"},
		{"an API key in one word", "APIKEY=abc run", "APIKEY=[redacted] run"},
		{"a small name", "api_key=abc run", "api_key=[redacted] run"},
		{"a private key", "PRIVATE_KEY=abcdef run", "PRIVATE_KEY=[redacted] run"},
		{"credentials", "CREDENTIALS=abcdef run", "CREDENTIALS=[redacted] run"},
		{"an auth value", "BASIC_AUTH=me:you run", "BASIC_AUTH=[redacted] run"},
		{"some other key", "STRIPE_KEY=abcdef run", "STRIPE_KEY=[redacted] run"},
		{"a value in double quotes whole", `SECRET="a b \" c" run`, `SECRET="[redacted]" run`},
		{"a value in single quotes whole", `SECRET='a b "c"' run`, `SECRET='[redacted]' run`},
		{"a value of several quotes", `SECRET='a b'"c d"e run`, `SECRET=[redacted] run`},
		{"a value with quotes inside", `SECRET=a"b c"d run`, `SECRET=[redacted] run`},
		{"a quote that is open to the end", `SECRET="a b c`, `SECRET="[redacted]`},
		{"name and value in one quote", `docker run -e "PASSWORD=a b" img`, `docker run -e "PASSWORD=[redacted]" img`},
		{"a command in a quote", `bash -c "export PASSWORD=abc" && grep "x" f`, `bash -c "export PASSWORD=[redacted]" && grep "x" f`},
		{"a value that only begins with a variable", `PASSWORD=$A.hunter2`, `PASSWORD=[redacted]`},
		{"a value that is only printed", `PASSWORD=$(echo hunter2)`, `PASSWORD=[redacted]`},
		{"a key of YAML", "password: hunter2\n", "password: [redacted]\n"},
		{"a key of JSON", `-d '{"user": "me", "password": "hunter2"}'`, `-d '{"user": "me", "password": "[redacted]"}'`},
		{"a key of JSON in a string", `-d "{\"api_key\":\"abc\", \"n\": 1}"`, `-d "{\"api_key\":\"[redacted]\", \"n\": 1}"`},
		{"an assignment in a program", `password = "hunter2"`, `password = "[redacted]"`},
		{"an item in a program", `os.environ["API_KEY"] = "abc"`, `os.environ["API_KEY"] = "[redacted]"`},
		{"a query", "curl 'https://h/p?token=abc&page=2'", "curl 'https://h/p?token=[redacted]&page=2'"},
		{"a literal for kubectl", "kubectl create secret generic s --from-literal=password=abc", "kubectl create secret generic s --from-literal=password=[redacted]"},

		{"a bearer", `curl -H "Authorization: Bearer abc.def" http://h`, `curl -H "Authorization: Bearer [redacted]" http://h`},
		{"a bearer in small letters", `-H 'authorization: bearer abc'`, `-H 'authorization: bearer [redacted]'`},
		{"basic authorization", `-H "Authorization: Basic bWU6eW91"`, `-H "Authorization: Basic [redacted]"`},
		{"an authorization without a scheme", `-H "Authorization: abcdefgh"`, `-H "Authorization: [redacted]"`},
		{"an authorization in JSON", `{"Authorization": "Bearer abc"}`, `{"Authorization": "Bearer [redacted]"}`},
		{"an API key's header", `-H "X-Api-Key: abc"`, `-H "X-Api-Key: [redacted]"`},
		{"a cookie", `-H "Cookie: sid=abc; b=c"`, `-H "Cookie: [redacted]"`},

		{"an option's next word", "x --password hunter2 -v", "x --password [redacted] -v"},
		{"an option with =", "x --token=abc -v", "x --token=[redacted] -v"},
		{"an option's quoted word", `x --api-key "a b" -v`, `x --api-key "[redacted]" -v`},
		{"an option in a quoted command", `bash -c "x --password abc" && y`, `bash -c "x --password [redacted]" && y`},
		{"an option after one without its value", "x --password --token abc", "x --password --token [redacted]"},
		{"an option on the next line", "x --token \\\n  abc -v", "x --token \\\n  [redacted] -v"},
		{"an option in a list", `["x", "--token", "abc", "-v"]`, `["x", "--token", "[redacted]", "-v"]`},
		{"curl -u", "curl -u me:hunter2 http://h", "curl -u me:[redacted] http://h"},
		{"curl -u in quotes", `curl -u "me:a b" http://h`, `curl -u "me:[redacted]" http://h`},
		{"curl -u in a cluster", "curl -sSu me:hunter2 http://h", "curl -sSu me:[redacted] http://h"},
		{"curl -u with its value attached", "curl -ume:hunter2 http://h", "curl -ume:[redacted] http://h"},
		{"curl --user", "curl --user me:hunter2 http://h", "curl --user me:[redacted] http://h"},
		{"curl --user=", "curl --user=me:hunter2 http://h", "curl --user=me:[redacted] http://h"},
		{"curl behind a path and a substitution", "x=$(/usr/bin/curl -u me:hunter2 h)", "x=$(/usr/bin/curl -u me:[redacted] h)"},
		{"sshpass", "sshpass -p hunter2 ssh h", "sshpass -p [redacted] ssh h"},
		{"sshpass with its value attached", "sshpass -phunter2 ssh h", "sshpass -p[redacted] ssh h"},
		{"mysql", "mysql -u root -phunter2 db", "mysql -u root -p[redacted] db"},
		{"docker login", "docker login -u me -p hunter2 r.io", "docker login -u me -p [redacted] r.io"},
		{"redis-cli", "redis-cli -a hunter2 ping", "redis-cli -a [redacted] ping"},

		{"a URL's password", "git clone https://me:hunter2@h/r.git", "git clone https://me:[redacted]@h/r.git"},
		{"a URL's token", "git clone https://abcdef@h/r.git", "git clone https://[redacted]@h/r.git"},
		{"a database's password", "psql postgres://me:p/w#x@h:5432/db", "psql postgres://me:[redacted]@h:5432/db"},
		{"a password without a user", "redis://:hunter2@h:6379", "redis://:[redacted]@h:6379"},
		{"a password with an at sign", "https://me:a@b@h/", "https://me:[redacted]@h/"},
		{"two URLs in one word", "a=http://u:p1@h,http://u:p2@h", "a=http://u:[redacted]@h,http://u:[redacted]@h"},

		{"GitHub's", "echo " + github, "echo [redacted]"},
		{"OpenAI's", "echo '" + openai + "'", "echo '[redacted]'"},
		{"Amazon's", "echo " + aws + "|x", "echo [redacted]|x"},
		{"Google's", "key=" + google, "key=[redacted]"},
		{"Slack's", "echo " + slack, "echo [redacted]"},
		{"GitLab's", "echo " + gitlab, "echo [redacted]"},
		{"npm's", "//r/:_x=" + npm, "//r/:_x=[redacted]"},
		{"Hugging Face's", "echo " + hugging, "echo [redacted]"},
		{"a JSON web token", "echo " + jwt + ".", "echo [redacted]."},
		{"a token after an escape", `printf "a\n` + github + `"`, `printf "a\n[redacted]"`},
		{"a key block", "cat > k <<E\n" + pem + "\nE", "cat > k <<E\n[redacted]\nE"},
		{"a key block that was cut", "x " + pem[:60], "x [redacted]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Text(tc.in)
			if got != tc.want {
				t.Errorf("Text(%q)\n got %q\nwant %q", tc.in, got, tc.want)
			}
			if again := Text(got); again != got {
				t.Errorf("a second time %q became %q", got, again)
			}
		})
	}
}

func TestTextKeeps(t *testing.T) {
	for name, in := range map[string]string{
		"plain commands":             "cd /x && ls -la | grep -v '^d' > out.txt",
		"variables":                  `TOKEN=$GH_TOKEN PASSWORD="${PASSWORD}" run --token "$TOKEN" --password ${PW}`,
		"commands in substitutions":  `TOKEN=$(vault read -field=x y) SECRET="$(pass show "a b")" run`,
		"arithmetic":                 "pass=$((pass+1)); pass=12",
		"an author":                  "GIT_AUTHOR_NAME=me GIT_AUTHOR_EMAIL=me@h git commit --author='me <me@h>'",
		"an agent's socket":          "SSH_AUTH_SOCK=/tmp/s ssh-add -l",
		"directories":                "PWD=/x OLDPWD=/y pwd",
		"names of files":             "POSTGRES_PASSWORD_FILE=/run/x x --token-file /t --password-stdin < f",
		"counts":                     `MAX_TOKENS=4096 x --max-tokens 100000 -d '{"max_tokens": 4096}'`,
		"tokenizers":                 "TOKENIZERS_PARALLELISM=false python x.py",
		"switches":                   `AUTH=none PRIVATE=true x --no-auth; x '{"private": true, "auth": {"a": 1}}'`,
		"a repository's visibility":  "gh repo create --private me/repo --source=.",
		"a secret by its id":         "docker build --secret id=tok,src=t . && docker build --secret=id=tok .",
		"users by number":            "docker run -u 1000:1000 --user 1000:1000 img && id -u",
		"ports":                      "docker run -p 8080:80 --name mysql -p 3306:3306 img; ssh -p 22 h",
		"prose in a commit":          `git commit -m "auth: fix login" -m "fix token: handle expiry" -m "authorization: add roles"`,
		"comparisons":                `if token == other or secret != "x"; [ "$password" = "$other" ]`,
		"code":                       "token = get_token(); secret := read(); for token in tokens: pass",
		"prompts":                    "read -rsp 'Password: ' pw; echo 'Enter password: '",
		"URLs":                       "curl -fsSL https://h.io:8080/a@b?x=c@d ssh://git@h/r git@h.com:a/b.git http://h/#a@b",
		"URLs with variables":        `git clone "https://$USER:$TOKEN@h/r" https://${TOKEN}@h/r https://me:<token>@h/r`,
		"headers":                    `-H "Content-Type: application/json" -H "Accept: */*" -H "Authorization: Bearer $TOKEN"`,
		"headers of a program":       `headers={"Authorization": f"Bearer {token}"}`,
		"public keys":                "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----\n-----BEGIN CERTIFICATE-----",
		"words like prefixes":        "task-a-long-name-with-number-12345 risk-assessment sk-learn hf_hub npm_config_x eyJ AKIA disk-" + letters,
		"a branch with a prefix":     "git checkout sk-some-very-long-branch-name-without-number",
		"hashes":                     "git show 0123456789abcdef0123456789abcdef01234567 && docker pull x@sha256:" + strings.Repeat("ab12", 16),
		"keys that open nothing":     "PRIMARY_KEY=id SORT_KEY=name x",
		"times and maps":             "date +%H:%M:%S; a={b: c}; x ? y : z",
		"what was masked before":     "TOKEN=[redacted] https://me:[redacted]@h --password [redacted]",
		"invalid UTF-8":              "printf '\xff\xfe' > x",
		"nothing":                    "",
		"signs alone":                "= : :: == --= :// @ -- - \" ' ` \\ $( ${",
		"a secret's name at the end": "TOKEN=",
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(in); got != in {
				t.Errorf("%q\nbecame %q", in, got)
			}
		})
	}
}

func TestTextKeepsWhatASubstitutionRuns(t *testing.T) {
	got := Text(`TOKEN="$(curl -H "Authorization: Bearer abc" -u a:b http://h)" x`)
	if want := `TOKEN="$(curl -H "Authorization: Bearer [redacted]" -u a:[redacted] http://h)" x`; got != want {
		t.Errorf("got %q", got)
	}
}

func TestValues(t *testing.T) {
	for _, tc := range []struct {
		name    string
		in      string
		secrets []string
		want    string
	}{
		{"every occurrence is masked", "a hunter2 b hunter2", []string{"hunter2"}, "a [redacted] b [redacted]"},
		{"a secret in another is part of that", "x=abcdef", []string{"abcd", "abcdef"}, "x=[redacted]"},
		{"secrets that overlap are masked together", "abcdefgh", []string{"abcde", "defgh"}, "[redacted]"},
		{"a secret that overlaps itself is masked whole", "xababab", []string{"abab"}, "x[redacted]"},
		{"short ones are ignored", "abc abc", []string{"abc", ""}, "abc abc"},
		{"four bytes are enough", "abcd", []string{"abcd"}, "[redacted]"},
		{"any bytes are looked for as they are", "a\xff\x00\"$b", []string{"\xff\x00\"$"}, "a[redacted]b"},
		{"none changes nothing", "abc", nil, "abc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Values(tc.in, tc.secrets); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func hard() map[string]string {
	const size = 1 << 17
	inputs := map[string]string{"text": strings.Repeat("cd /x && cat file.txt | grep 'a b' # note: x = y\n", size/49)}
	for _, s := range []string{
		"=", ":", "a://", "TOKEN=", "token:", "token: ", "TOKEN=\"", "TOKEN=a\"", "TOKEN=$(", "TOKEN=$(a)", "${", "TOKEN=${",
		"cookie: ", "authorization: bearer ", "curl -u ", "--token ", "--token \"", "--token -", "-----BEGIN PRIVATE KEY-----",
		"-----BEGIN ", "sk-", "eyJ.", "eyJa.", " = ", "\\", "\\\"", "\"", "TOKEN=\"\"", "a", "\"password\": \"", "(", "TOKEN=$((a", "u:p@",
	} {
		inputs[s] = strings.Repeat(s, size/len(s))
		inputs[s+" then prose"] = strings.Repeat(s, size/len(s)) + " x y"
	}
	inputs["nested"] = strings.Repeat("TOKEN=$(", size/9) + strings.Repeat(")", size/9)
	return inputs
}

func TestRepetitionsOfAnythingEnd(t *testing.T) {
	for name, in := range hard() {
		start := time.Now()
		Text(in)
		if d := time.Since(start); d > 20*time.Millisecond {
			t.Logf("%q took %v", name, d)
		}
	}
	Values(strings.Repeat("a", 1<<20), []string{strings.Repeat("a", 200), strings.Repeat("a", 1<<19)})
}

func FuzzText(f *testing.F) {
	f.Add("TOKEN=", " x")
	f.Add(`curl -u "a:`, `" h`)
	f.Add("https://a:", "@h")
	f.Add("'{\"password\": \"", "\"}'")
	f.Add("x --password $(", ")")
	f.Add("-----BEGIN RSA PRIVATE KEY-----", "-----END")
	f.Add("a\\", "\\")
	f.Fuzz(func(t *testing.T, before, after string) {
		// A token that stands alone is found in any surroundings.
		got := Text(before + " " + github + " " + after)
		if strings.Contains(got, github[10:30]) {
			t.Fatalf("%q is not masked", got)
		}
		Text(before + after)
		if strings.Contains(Values(before+github+after, []string{github}), github) {
			t.Fatal("an exact value is not masked")
		}
	})
}

func BenchmarkText(b *testing.B) {
	in := hard()["text"]
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		Text(in)
	}
}
