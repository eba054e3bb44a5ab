package ruleset

import (
	"encoding/json"
	"strings"
)

// nftText formats an expression of nft's JSON in nft's own syntax as far as kube-proxy's rules need
// it. It prints all other expressions as JSON.
func nftText(v any) string { return nftTextDepth(v, 0) }

func nftTextDepth(v any, depth int) string {
	if depth > 8 {
		return "..."
	}
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case []any:
		return joinText(v, ", ", depth)
	case map[string]any:
		if len(v) == 1 {
			for name, arg := range v {
				return nftObjectText(name, arg, depth+1)
			}
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(text)
}

func nftObjectText(name string, arg any, depth int) string {
	get := func(key string) string {
		v, _ := member(arg, key)
		return nftTextDepth(v, depth)
	}
	switch name {
	case "payload":
		return get("protocol") + " " + get("field")
	case "meta", "ct":
		if direction := get("dir"); direction != "" {
			name += " " + direction
		}
		return name + " " + get("key")
	case "prefix":
		return get("addr") + "/" + get("len")
	case "fib":
		return "fib " + get("flags") + " " + get("result")
	case "numgen":
		return "numgen " + get("mode") + " mod " + get("mod")
	case "goto", "jump":
		return name + " " + get("target")
	case "elem":
		return get("val")
	case "concat":
		return joinText(arg, " . ", depth)
	case "set":
		list, ok := arg.([]any)
		if !ok {
			return nftTextDepth(arg, depth)
		}
		words := make([]string, 0, min(len(list), 8))
		for i, e := range list {
			if i == 8 {
				words = append(words, "...")
				break
			}
			if pair, ok := e.([]any); ok && len(pair) == 2 {
				words = append(words, nftTextDepth(pair[0], depth)+" : "+nftTextDepth(pair[1], depth))
			} else {
				words = append(words, nftTextDepth(e, depth))
			}
		}
		return "{ " + strings.Join(words, ", ") + " }"
	case "&", "|", "^":
		return joinText(arg, " "+name+" ", depth)
	case "drop", "accept", "return", "reject":
		return name
	}
	return name + " " + nftTextDepth(arg, depth)
}

func joinText(v any, by string, depth int) string {
	list, ok := v.([]any)
	if !ok {
		return nftTextDepth(v, depth+1)
	}
	words := make([]string, 0, len(list))
	for _, e := range list {
		words = append(words, nftTextDepth(e, depth+1))
	}
	return strings.Join(words, by)
}
