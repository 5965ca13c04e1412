package scrub

// level says how strictly a family is blocked.
type level int

const (
	passable level = iota // terminal.env_passthrough may allow it
	always                // it may not; _HERMES_FORCE_ still does
	internal              // nothing does
)

// family is a set of names that are blocked for one reason: those that match one of patterns, and those that begin with
// one of vendors and "_" and match one of ends. In a pattern "*" stands for any text, also none. All are in capital
// letters.
type family struct {
	what     string
	level    level
	patterns []string
	vendors  []string
	ends     []string
}

// secrets are the ends that make a vendor's name a secret; reached adds what says where the vendor is reached, and as
// whom.
var (
	secrets = []string{"*KEY", "*KEYS", "*TOKEN", "*TOKENS", "*SECRET", "*PASSWORD", "*API_KEY_*", "*ACCOUNT_SID"}
	reached = []string{
		"*KEY", "*KEYS", "*TOKEN", "*TOKENS", "*SECRET", "*PASSWORD", "*API_KEY_*",
		"*URL", "*API_BASE", "*API_HOST", "*ENDPOINT", "*ORG_ID", "*ORGANIZATION", "*PROJECT_ID",
	}
)

// marks name the Python environment of the agent itself. A command may set them; they are no secret.
var marks = []string{"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME"}

// kept are names that a family would catch and that commands have on purpose.
var kept = []string{
	// A spawned `claude` that lacks it logs its user out (NousResearch/hermes-agent#55878).
	"CLAUDE_CODE_OAUTH_TOKEN",
	// Which provider or model an auxiliary task uses is no secret.
	"AUXILIARY_*_PROVIDER", "AUXILIARY_*_MODEL",
	"GATEWAY_RELAY_URL", "GATEWAY_RELAY_PLATFORMS",
	// The channel back to Hermes' code execution, given for one call.
	"HERMES_RPC_*",
}

var families = []family{
	{what: "a secret between Hermes' own parts", level: internal, patterns: []string{
		"AUXILIARY_*_API_KEY", "AUXILIARY_*_BASE_URL",
		"GATEWAY_RELAY_*_SECRET", "GATEWAY_RELAY_*_KEY", "GATEWAY_RELAY_*_TOKEN",
		"GATEWAY_RELAY_SECRET", "GATEWAY_RELAY_KEY", "GATEWAY_RELAY_TOKEN",
	}},
	{what: "the key to a secret store", level: internal, patterns: []string{
		"OP_SERVICE_ACCOUNT_TOKEN", "OP_CONNECT_TOKEN", "OP_SESSION_*", "*BWS*_TOKEN",
	}},
	{what: "the user's password", level: internal, patterns: []string{"SUDO_PASSWORD", "TERMINAL_SUDO_PASSWORD"}},
	{what: "a secret of elsewhere or Hermes itself", level: internal, patterns: []string{
		"ELSEWHERE_*TOKEN", "ELSEWHERE_*SECRET", "ELSEWHERE_*_KEY",
		"HERMES_DASHBOARD_*TOKEN", "HERMES_DASHBOARD_*PASSWORD", "HERMES_DASHBOARD_*SECRET",
	}},
	{what: "GitHub authentication", level: always, patterns: []string{
		"GH_TOKEN", "GH_*_TOKEN", "GITHUB_TOKEN", "GITHUB_*_TOKEN", "GITHUB_PAT", "GITHUB_PAT_*", "GH_PAT",
		"GITHUB_APP_*", "COPILOT_*TOKEN",
	}},
	{what: "a credential of a place that runs commands", level: always, patterns: []string{"MODAL_*", "DAYTONA_*", "VERCEL_*"}},
	{what: "a credential of a messaging platform", level: always, patterns: []string{
		"TELEGRAM_BOT_TOKEN", "DISCORD_BOT_TOKEN", "SLACK_*TOKEN", "SLACK_SIGNING_SECRET", "HASS_TOKEN", "EMAIL_PASSWORD",
		"GATEWAY_ALLOWED_USERS", "GATEWAY_ALLOW_ALL_USERS", "GATEWAY_RELAY_ID", "GATEWAY_RELAY_DELIVERY_KEY",
		"MSGRAPH_*SECRET", "MSGRAPH_WEBHOOK_CLIENT_STATE", "QQ_STT_API_KEY",
	}},
	{what: "a setting of a messaging platform", level: passable, patterns: []string{
		"TELEGRAM_*", "DISCORD_*", "SLACK_*", "WHATSAPP_*", "SIGNAL_*", "HASS_*", "EMAIL_*", "MATTERMOST_*", "MATRIX_*",
		"BLUEBUBBLES_*", "QQ_*", "QQBOT_*", "IRC_*", "API_SERVER_*", "MSGRAPH_*", "BUZZ_*",
		"GATEWAY_ALLOW*", "GATEWAY_PROXY_*", "GATEWAY_RELAY_*", "WEBHOOK_ENABLED", "WEBHOOK_PORT", "WEBHOOK_*SECRET",
	}},
	{what: "a credential of a messaging platform", level: passable, vendors: []string{
		"DINGTALK", "FEISHU", "GOOGLE_CHAT", "LARK", "LINE", "NTFY", "SIMPLEX", "SMS", "TEAMS", "TWILIO", "WECHAT", "WECOM",
		"WEIXIN", "YUANBAO", "ZALO",
	}, ends: secrets},
	{what: "a setting of Hermes", level: passable, patterns: []string{
		"HERMES_*_API_KEY", "HERMES_*_BASE_URL", "HERMES_*SECRET", "HERMES_*TOKEN", "HERMES_*PASSWORD", "HERMES_DASHBOARD_*",
		"HERMES_LANGFUSE_*", "TOOL_GATEWAY_*", "CONNECTOR_GATEWAY_*", "LLM_MODEL",
	}},
	{what: "a secret store's setting", level: passable, patterns: []string{"OP_*", "BW_SESSION", "BW_PASSWORD", "BW_CLIENTID", "BW_CLIENTSECRET", "BWS_*"}},
	{what: "a model provider's key or address", level: passable, vendors: []string{
		"ACTUAL", "AI21", "AI_GATEWAY", "ALEPH_ALPHA", "ALIBABA", "ANTHROPIC", "ANYSCALE", "ARCEE", "ARCEEAI", "ARK", "AZURE_AI",
		"AZURE_FOUNDRY", "AZURE_INFERENCE", "AZURE_OPENAI", "BAICHUAN", "BASETEN", "BEDROCK", "BIGMODEL", "CEREBRAS", "CHUTES",
		"CLAUDE", "CODEX", "COHERE", "COMMANDCODE", "COPILOT", "CURSOR", "DASHSCOPE", "DEEPINFRA", "DEEPSEEK", "DOUBAO", "ERNIE",
		"FIREWORKS", "FIREWORKSAI", "FRIENDLI", "GEMINI", "GLM", "GMI", "GROK", "GROQ", "HELICONE", "HF", "HUGGINGFACE",
		"HUGGINGFACEHUB", "HUGGING_FACE", "HUNYUAN", "HYPERBOLIC", "INCEPTION", "KILO", "KILOCODE", "KIMI", "LEPTON", "LITELLM",
		"LLM", "LM", "LMSTUDIO", "MIMO", "MINIMAX", "MISTRAL", "MODELSCOPE", "MOONSHOT", "MORPH", "NEBIUS", "NIM", "NOUS",
		"NOVITA", "NVIDIA", "OLLAMA", "OPENAI", "OPENCODE", "OPENROUTER", "PERPLEXITY", "PERPLEXITYAI", "PORTKEY", "PPLX",
		"QIANFAN", "QWEN", "RELACE", "REPLICATE", "REQUESTY", "SAMBANOVA", "SILICONFLOW", "STEPFUN", "TOGETHER", "TOGETHERAI",
		"UPSTAGE", "VENICE", "VERTEX", "VERTEXAI", "VOLCENGINE", "VOYAGE", "VOYAGEAI", "WATSONX", "XAI", "XIAOMI", "YI", "ZAI",
		"ZHIPU", "ZHIPUAI", "Z_AI",
	}, ends: reached},
	{what: "a model provider's key or address", level: passable, patterns: []string{
		"AWS_BEARER_TOKEN_BEDROCK", "AZURE_API_BASE", "AZURE_API_KEY", "CO_API_KEY", "GOOGLE_*API_KEY*", "GOOGLE_API_KEY*",
		"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GEMINI_*", "VERTEX_CREDENTIALS*", "CLOUDFLARE_AI_*",
	}},
	{what: "a tool provider's key or address", level: passable, vendors: []string{
		"APIFY", "ASSEMBLYAI", "ASSEMBLY_AI", "BRAVE", "BROWSERBASE", "BROWSER_USE", "BRV", "BYTEROVER", "CAMOFOX", "CARTESIA",
		"COMPOSIO", "DEEPGRAM", "DIFFBOT", "E2B", "ELEVENLABS", "EXA", "FAL", "FIRECRAWL", "HINDSIGHT", "HONCHO", "HUME",
		"HYPERBROWSER", "IDEOGRAM", "JINA", "KEENABLE", "KREA", "LANGCHAIN", "LANGFUSE", "LANGSMITH", "LEONARDO", "LETTA", "LINKUP",
		"LUMA", "LUMAAI", "MEM0", "OPENVIKING", "PARALLEL", "PICOVOICE", "PLAYHT", "PORCUPINE", "RETAINDB", "RUNWAY", "RUNWAYML",
		"SCRAPINGBEE", "SEARCHAPI", "SEARXNG", "SERP", "SERPAPI", "SERPER", "STABILITY", "STEEL", "SUPERMEMORY", "TAVILY", "TINKER",
		"VOICE_TOOLS", "XI", "ZEP",
	}, ends: reached},
	{what: "the key to a telemetry collector", level: passable, patterns: []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_*_HEADERS"}},
	{what: "a tool provider's setting", level: passable, patterns: []string{
		"HONCHO_*", "HINDSIGHT_*", "RETAINDB_*", "OPENVIKING_*", "FIRECRAWL_*", "CAMOFOX_*", "BROWSERBASE_*", "AGENT_BROWSER_ENGINE",
	}},
}
