package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere"
)

// askedKey is the key of a context for the client whose call it is: sandboxes are shared, so that a question has to find its way.
type askedKey struct{}

func withAsked(ctx context.Context, ss *mcp.ServerSession) context.Context {
	return context.WithValue(ctx, askedKey{}, ss)
}

// cannotAsk is the error of a client whose user cannot be asked; it is errors.ErrUnsupported, as elsewhere.SandboxOptions.Approve has it.
type cannotAsk struct{}

func (cannotAsk) Error() string { return "this MCP client cannot ask its user (it has no elicitation)" }

// Is makes it errors.ErrUnsupported.
func (cannotAsk) Is(target error) bool { return target == errors.ErrUnsupported }

// approve asks the user of the client whose call it is, where the client can (elicitation). A model is never asked.
func (s *Server) approve(ctx context.Context, q elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
	ss, _ := ctx.Value(askedKey{}).(*mcp.ServerSession)
	if ss == nil || !elicits(ss) {
		return elsewhere.ApproveNot, cannotAsk{}
	}
	choices := []any{string(elsewhere.ApproveOnce)}
	if q.Lasts {
		choices = append(choices, string(elsewhere.ApproveSession), string(elsewhere.ApproveAlways))
	}
	res, err := ss.Elicit(ctx, &mcp.ElicitParams{Message: questionText(q), RequestedSchema: map[string]any{
		"type": "object",
		"properties": map[string]any{"approve": map[string]any{
			"type": "string", "title": "Approve", "enum": choices, "default": choices[0],
			"description": "once: this time; session: the same command again in this session; always: kept for good",
		}},
	}})
	switch {
	case err != nil:
		return elsewhere.ApproveNot, fmt.Errorf("the user could not be asked: %w", err)
	case res.Action == "decline":
		return elsewhere.ApproveNot, errors.New("the user said no")
	case res.Action != "accept":
		return elsewhere.ApproveNot, errors.New("the user did not answer")
	}
	if answer, ok := res.Content["approve"].(string); ok {
		return elsewhere.PolicyAnswer(answer), nil
	}
	return elsewhere.ApproveOnce, nil
}

// elicits tells whether a client can show its user a form.
func elicits(ss *mcp.ServerSession) bool {
	p := ss.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil {
		return false
	}
	// One that names no form of it is of a protocol that had forms alone.
	e := p.Capabilities.Elicitation
	return e.Form != nil || e.URL == nil
}

// questionText is a question for a person.
func questionText(q elsewhere.PolicyQuestion) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The agent wants to do something on %s (%s@%s) that has to be confirmed.\n", q.Backend, q.Where.User, q.Where.Host)
	for _, f := range q.Findings {
		fmt.Fprintf(&b, "Rule %s: it %s: %s\n", f.Rule, f.Reason, f.Where)
	}
	const most = 2000
	text := strings.ToValidUTF8(q.Command, "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	fmt.Fprintf(&b, "%s: %s", q.Op, text)
	if q.Dir != "" {
		b.WriteString("\nin " + q.Dir)
	}
	return b.String()
}
