package scrub

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// blockedNames holds one of every family, and every name that Hermes lists one by one.
var blockedNames = strings.Fields(`
	OPENAI_BASE_URL OPENAI_API_KEY OPENAI_API_BASE OPENAI_ORG_ID OPENAI_ORGANIZATION OPENROUTER_API_KEY ANTHROPIC_BASE_URL
	ANTHROPIC_API_KEY ANTHROPIC_TOKEN LLM_MODEL GOOGLE_API_KEY VERTEX_CREDENTIALS_PATH GOOGLE_APPLICATION_CREDENTIALS
	DEEPSEEK_API_KEY MISTRAL_API_KEY GROQ_API_KEY TOGETHER_API_KEY PERPLEXITY_API_KEY COHERE_API_KEY FIREWORKS_API_KEY
	XAI_API_KEY HELICONE_API_KEY PARALLEL_API_KEY FIRECRAWL_API_KEY FIRECRAWL_API_URL TELEGRAM_HOME_CHANNEL
	TELEGRAM_HOME_CHANNEL_NAME DISCORD_HOME_CHANNEL DISCORD_HOME_CHANNEL_NAME DISCORD_REQUIRE_MENTION
	DISCORD_FREE_RESPONSE_CHANNELS DISCORD_AUTO_THREAD SLACK_HOME_CHANNEL SLACK_HOME_CHANNEL_NAME SLACK_ALLOWED_USERS
	WHATSAPP_ENABLED WHATSAPP_MODE WHATSAPP_ALLOWED_USERS SIGNAL_HTTP_URL SIGNAL_ACCOUNT SIGNAL_ALLOWED_USERS
	SIGNAL_GROUP_ALLOWED_USERS SIGNAL_HOME_CHANNEL SIGNAL_HOME_CHANNEL_NAME SIGNAL_IGNORE_STORIES HASS_TOKEN HASS_URL
	EMAIL_ADDRESS EMAIL_PASSWORD EMAIL_IMAP_HOST EMAIL_SMTP_HOST EMAIL_HOME_ADDRESS EMAIL_HOME_ADDRESS_NAME
	HERMES_DASHBOARD_SESSION_TOKEN GATEWAY_ALLOWED_USERS GH_TOKEN GITHUB_APP_ID GITHUB_APP_PRIVATE_KEY_PATH
	GITHUB_APP_INSTALLATION_ID MODAL_TOKEN_ID MODAL_TOKEN_SECRET DAYTONA_API_KEY GATEWAY_RELAY_ID GATEWAY_RELAY_SECRET
	GATEWAY_RELAY_DELIVERY_KEY VERCEL_OIDC_TOKEN VERCEL_TOKEN VERCEL_PROJECT_ID VERCEL_TEAM_ID
	AWS_BEARER_TOKEN_BEDROCK GEMINI_API_KEY GEMINI_BASE_URL NVIDIA_API_KEY NVIDIA_BASE_URL LM_API_KEY LM_BASE_URL GLM_API_KEY
	GLM_BASE_URL ZAI_API_KEY Z_AI_API_KEY KIMI_API_KEY KIMI_BASE_URL KIMI_CN_API_KEY STEPFUN_API_KEY ARCEEAI_API_KEY
	ARCEE_BASE_URL GMI_API_KEY ACTUAL_API_KEY MINIMAX_API_KEY MINIMAX_CN_API_KEY MINIMAX_CN_BASE_URL DASHSCOPE_API_KEY
	DASHSCOPE_BASE_URL HERMES_QWEN_BASE_URL OPENCODE_ZEN_API_KEY OPENCODE_GO_BASE_URL COMMANDCODE_API_KEY HF_TOKEN HF_BASE_URL
	OLLAMA_API_KEY OLLAMA_BASE_URL XIAOMI_API_KEY UPSTAGE_API_KEY AZURE_FOUNDRY_API_KEY AZURE_FOUNDRY_BASE_URL NOUS_BASE_URL
	HERMES_ANON_API_SECRET EXA_API_KEY TAVILY_API_KEY KEENABLE_API_KEY SEARXNG_URL BRAVE_SEARCH_API_KEY BROWSERBASE_API_KEY
	BROWSERBASE_PROJECT_ID BROWSER_USE_API_KEY FIRECRAWL_BROWSER_TTL FIRECRAWL_GATEWAY_URL TOOL_GATEWAY_URL TOOL_GATEWAY_DOMAIN
	TOOL_GATEWAY_SCHEME TOOL_GATEWAY_USER_TOKEN CONNECTOR_GATEWAY_URL AGENT_BROWSER_ENGINE CAMOFOX_URL CAMOFOX_API_KEY FAL_KEY
	KREA_API_KEY VOICE_TOOLS_OPENAI_KEY ELEVENLABS_API_KEY PORCUPINE_ACCESS_KEY GITHUB_TOKEN HONCHO_API_KEY HONCHO_WORKSPACE
	HINDSIGHT_API_URL SUPERMEMORY_API_KEY MEM0_API_KEY RETAINDB_PROJECT BRV_API_KEY OPENVIKING_ENDPOINT
	HERMES_LANGFUSE_PUBLIC_KEY TELEGRAM_BOT_TOKEN TELEGRAM_ALLOWED_USERS TELEGRAM_PROXY DISCORD_BOT_TOKEN
	DISCORD_REPLY_TO_MODE SLACK_BOT_TOKEN SLACK_APP_TOKEN MATTERMOST_TOKEN MATRIX_PASSWORD BLUEBUBBLES_PASSWORD QQ_APP_ID
	QQBOT_SECRET IRC_SERVER GATEWAY_ALLOW_ALL_USERS API_SERVER_KEY GATEWAY_PROXY_URL GATEWAY_PROXY_KEY WEBHOOK_ENABLED
	WEBHOOK_PORT WEBHOOK_SECRET SUDO_PASSWORD AUXILIARY_VISION_API_KEY AUXILIARY_WEB_EXTRACT_BASE_URL GATEWAY_RELAY_A_SECRET
	GATEWAY_RELAY_A_KEY GATEWAY_RELAY_A_TOKEN OP_SERVICE_ACCOUNT_TOKEN OP_CONNECT_TOKEN OP_SESSION_my OP_CONNECT_HOST
	BWS_ACCESS_TOKEN MY_BWS_PROD_TOKEN SLACK_SIGNING_SECRET HERMES_DASHBOARD_BASIC_AUTH_PASSWORD
	HERMES_DASHBOARD_BASIC_AUTH_SECRET HERMES_DASHBOARD_OIDC_CLIENT_SECRET HERMES_DASHBOARD_DRAIN_SECRET MSGRAPH_CLIENT_SECRET
	MSGRAPH_WEBHOOK_CLIENT_STATE QQ_STT_API_KEY BUZZ_TOKEN BUZZ_CHANNEL GITHUB_PAT GH_ENTERPRISE_TOKEN
	OPENAI_API_KEY_2 openai_api_key APPTAINERENV_OPENAI_API_KEY SINGULARITYENV_APPTAINERENV_GH_TOKEN APPTAINERENV_OP_SESSION_x
	TWILIO_ACCOUNT_SID FEISHU_APP_SECRET CEREBRAS_API_KEY MOONSHOT_API_KEY ELSEWHERE_MCP_TOKEN ANTHROPIC_AUTH_TOKEN
	GOOGLE_GENERATIVE_AI_API_KEY AZURE_OPENAI_ENDPOINT DAYTONA_API_URL MODAL_PROFILE VERCEL_ENV
`)

// keptNames are those that commands have on purpose, and neighbours of blocked ones.
var keptNames = strings.Fields(`
	AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_CONFIG_FILE AWS_ROLE_ARN
	AWS_WEB_IDENTITY_TOKEN_FILE CLAUDE_CODE_OAUTH_TOKEN AUXILIARY_VISION_PROVIDER AUXILIARY_VISION_MODEL GATEWAY_RELAY_URL
	GATEWAY_RELAY_PLATFORMS NOTION_API_KEY LINEAR_API_KEY AIRTABLE_API_KEY TENOR_API_KEY STRIPE_API_KEY MY_API_KEY
	PATH HOME EMAIL USER SSH_AUTH_SOCK GITHUB_ACTIONS GITHUB_WORKSPACE GITHUB_REPOSITORY GOOGLE_CLOUD_PROJECT
	NVIDIA_VISIBLE_DEVICES HF_HOME OLLAMA_HOST OLLAMA_MODELS PYTHONPATH HERMES_HOME HERMES_SESSION_KEY HERMES_RPC_TOKEN
	TERMINAL_ENV NPM_TOKEN DATABASE_URL LINES COLUMNS OP LMOD_CMD MODALITY APPTAINERENV_PATH KUBECONFIG XDG_RUNTIME_DIR
	_ A
`)

func TestEveryFamilyIsBlockedAndItsNeighboursAreNot(t *testing.T) {
	for _, name := range blockedNames {
		if !Blocked(name) || Reason(name) == "" {
			t.Errorf("%s reaches commands", name)
		}
	}
	for _, name := range keptNames {
		if Blocked(name) || Always(name) || Reason(name) != "" {
			t.Errorf("%s is kept from commands: %s", name, Reason(name))
		}
	}
}

func entries(names []string) []string {
	var env []string
	for _, name := range names {
		env = append(env, name+"=value of "+name)
	}
	return env
}

func TestAnEnvironmentLosesBlockedNamesAndTheAgentsOwnPython(t *testing.T) {
	want := append(entries(keptNames), "EMPTY=", "LIKE=OPENAI_API_KEY=x")
	env := append(entries(blockedNames), "VIRTUAL_ENV=/v", "CONDA_PREFIX=/c", "PYTHONHOME=/p")
	env = append(env, want...)
	before := slices.Clone(env)
	got, warnings := Environ(env, nil)
	if !slices.Equal(got, want) || len(warnings) > 0 {
		t.Errorf("got %q, warnings %q", got, warnings)
	}
	if !slices.Equal(env, before) {
		t.Error("the caller's environment was changed")
	}
}

func TestPassthroughAllowsNamesButNotThoseThatAreAlwaysBlocked(t *testing.T) {
	pass := []string{"OPENAI_API_KEY", "VIRTUAL_ENV", "BUZZ_X", "NOT_SET", "GITHUB_TOKEN", "SUDO_PASSWORD", "AUXILIARY_A_API_KEY", "MODAL_TOKEN_ID", "*", ""}
	got, warnings := Environ(entries(append(pass[:8:8], "ANTHROPIC_API_KEY")), pass)
	want := entries(pass[:4])
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	all := strings.Join(warnings, "\n")
	if len(warnings) != 6 {
		t.Errorf("warnings: %q", warnings)
	}
	for _, name := range pass[4:8] {
		if !strings.Contains(all, name) || !Always(name) {
			t.Errorf("no warning names %s: %q", name, warnings)
		}
	}
	if strings.Contains(all, "value of") {
		t.Errorf("a warning tells a value: %q", warnings)
	}
}

func TestAForcedNameIsHandedOnUnlessItIsASecretBetweenHermesParts(t *testing.T) {
	got, _ := Environ([]string{
		"OPENAI_API_KEY=own", "_HERMES_FORCE_OPENAI_API_KEY=forced", "_HERMES_FORCE_PLAIN=p", "PLAIN=own",
		"_HERMES_FORCE_AUXILIARY_A_API_KEY=no", "_HERMES_FORCE_SUDO_PASSWORD=no", "_HERMES_FORCE_=no",
	}, nil)
	if want := []string{"OPENAI_API_KEY=forced", "PLAIN=p"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The bash text and the Go predicate are one table; here they are seen to agree in every bash of this machine.
func TestTheBashTextUnsetsWhatIsBlockedAndNothingElse(t *testing.T) {
	var older []string
	if dir := os.Getenv("ELSEWHERE_BASHES"); dir != "" { // a directory of bash-VERSION files
		older, _ = filepath.Glob(filepath.Join(dir, "bash-*"))
	}
	for _, bash := range append(older, "/bin/bash") {
		for name, before := range map[string]string{
			"plainly":              "",
			"under strict options": "set -eu\n",
			"with an odd IFS":      "IFS=A_\n",
			"with aliases":         "shopt -s expand_aliases; alias unset=false local=false\n",
			"without case":         "shopt -s nocasematch\n",
			"in posix mode":        "set -o posix\n",
		} {
			t.Run(filepath.Base(bash)+" "+name, func(t *testing.T) {
				for name, there := range scrubbed(t, bash, before) {
					switch allowed := name == "MISTRAL_API_KEY"; {
					case slices.Contains(blockedNames, name) && !allowed:
						t.Errorf("%s is still there", name)
					case strings.Contains(name, "elsewhere") || strings.Contains(name, "FORCE"):
						t.Errorf("%s is left behind", name)
					case name == "nocasematch":
						t.Error("nocasematch is not as before")
					case !there:
						t.Errorf("%s is gone", name)
					}
				}
			})
		}
	}
}

// scrubbed gives the variables that a bash exports after the text, and with false those that it should.
func scrubbed(t *testing.T, bash, before string) map[string]bool {
	t.Helper()
	script := before + "was=0; shopt -q nocasematch || was=1\n" + BashUnset("MISTRAL_API_KEY", "GH_TOKEN") +
		"is=0; shopt -q nocasematch || is=1; [ $is = $was ] || echo nocasematch; declare -F; shopt -u nocasematch; export -p"
	cmd := exec.Command(bash, "--noprofile", "--norc", "-p", "-c", script)
	cmd.Env = append(entries(append(blockedNames, keptNames...)), "_HERMES_FORCE_X=1", "VIRTUAL_ENV=/v", "PATH="+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	have := map[string]bool{"VIRTUAL_ENV": false, "MISTRAL_API_KEY": false}
	for _, name := range keptNames {
		if name != "_" {
			have[name] = false
		}
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimPrefix(strings.TrimPrefix(line, "declare -x "), "export ")
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		have[name] = true
	}
	return have
}

func TestAReadonlySecretIsAtLeastNoLongerExported(t *testing.T) {
	cmd := exec.Command("bash", "--noprofile", "--norc", "-c", "readonly OPENAI_API_KEY GROQ_API_KEY\n"+BashUnset()+"export -p; echo end")
	cmd.Env = []string{"OPENAI_API_KEY=s3cret", "GROQ_API_KEY=s3cret", "TINKER_API_KEY=s3cret"}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "s3cret") || !strings.HasSuffix(string(out), "end\n") {
		t.Errorf("%v: %s", err, out)
	}
}

func BenchmarkEnviron(b *testing.B) {
	env := append(entries(blockedNames), entries(keptNames)...)[150:]
	for b.Loop() {
		Environ(env, nil)
	}
}

func TestForwardPicksWhatIsNamedAndMayBeHandedOn(t *testing.T) {
	env := []string{"A=1=2", "B=3", "GITHUB_TOKEN=4", "OPENAI_API_KEY=5", "odd"}
	vars, notices := Forward(env, []string{"A", "GITHUB_TOKEN", "OPENAI_API_KEY", "MISSING"})
	if len(vars) != 2 || vars["A"] != "1=2" || vars["OPENAI_API_KEY"] != "5" || len(notices) != 1 || !strings.Contains(notices[0], "GITHUB_TOKEN") {
		t.Errorf("%v, %q", vars, notices)
	}
	if vars, notices := Forward(env, nil); vars != nil || len(notices) != 0 {
		t.Errorf("of no names: %v, %q", vars, notices)
	}
}
