# A program that shakes hands as agents do, and then does what it should not: liar.sh DRIVER TRICK
driver=$1
trick=$2

say() { printf '%s\n' "$1"; }
hear() { IFS= read -r line || exit 3; }

acp() { # KIND FIELDS
    say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"'"$1"'",'"$2"'}}}'
}

case $driver in
acp)
    hear; say '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":true}}}}'
    hear; say '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
    hear
    ;;
claude)
    hear; say '{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{"models":[]}}}'
    hear; say '{"type":"control_response","response":{"subtype":"success","request_id":"2","response":{}}}'
    hear
    ;;
codex)
    hear; say '{"id":1,"result":{"userAgent":"liar/0.166.0"}}'
    hear; hear; say '{"id":2,"result":{"thread":{"id":"t"},"model":"m"}}'
    hear; say '{"id":3,"result":{"turn":{"id":"u"}}}'
    say '{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}'
    ;;
esac
# What it is told from now on it does not care about.
exec 3<&0
cat <&3 >/dev/null &

finish() { # FIELDS
    case $driver in
    acp) say '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"'"$1"'}}' ;;
    claude) say '{"type":"result","subtype":"success","is_error":false,"result":""'"$1"'}' ;;
    codex) say '{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}' ;;
    esac
    wait
}

ask() { # NUMBER
    case $driver in
    acp) say '{"jsonrpc":"2.0","id":"p'"$1"'","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c'"$1"'","title":"run it '"$1"'"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}}' ;;
    claude) say '{"type":"control_request","request_id":"p'"$1"'","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"c'"$1"'","input":{"command":"run it '"$1"'"}}}' ;;
    codex) say '{"id":"p'"$1"'","method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"c'"$1"'","command":"run it '"$1"'"}}' ;;
    esac
}

take_back() { # NUMBER
    case $driver in
    acp) say '{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"p'"$1"'"}}' ;;
    claude) say '{"type":"control_cancel_request","request_id":"p'"$1"'"}' ;;
    codex) say '{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":"p'"$1"'"}}' ;;
    esac
}

repeat() { # HOW_OFTEN COMMAND...
    n=0 most=$1
    shift
    while [ $n -lt "$most" ]; do
        n=$((n + 1))
        "$@" $n
    done
}

ask_and_take_back() {
    ask "$1"
    take_back "$1"
}

max=18446744073709551615
case $trick in
garbage)
    yes '{"id": [' | head -n 100000
    yes 'null' | head -n 1000
    head -c 1000000 /dev/urandom
    say ''
    finish
    ;;
endless)
    yes | tr -d '\n'
    ;;
leaves)
    exit 7
    ;;
usage)
    case $driver in
    acp)
        acp usage_update '"used":'$max',"size":1,"cost":{"amount":-5.0,"currency":"USD"}'
        finish ',"usage":{"totalTokens":'$max',"inputTokens":'$max',"outputTokens":'$max'}'
        ;;
    claude)
        finish ',"total_cost_usd":-5,"model_usage_since_last_result":{"m":{"inputTokens":'$max',"outputTokens":'$max',"costUSD":-5}}'
        ;;
    codex)
        used='{"totalTokens":'$max',"inputTokens":'$max',"cachedInputTokens":'$max',"outputTokens":'$max'}'
        say '{"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"u","tokenUsage":{"total":'"$used"',"last":'"$used"',"modelContextWindow":'$max'}}}'
        finish
        ;;
    esac
    ;;
strange)
    # Permissions that cannot be given, answers that nobody asked for, and ends of what never began.
    case $driver in
    acp)
        say '{"jsonrpc":"2.0","id":"p1","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c1"},"options":[]}}'
        say '{"jsonrpc":"2.0","id":"p2","method":"session/request_permission","params":{}}'
        say '{"jsonrpc":"2.0","id":999,"result":{"outcome":"selected"}}'
        say '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        ;;
    claude)
        say '{"type":"control_request","request_id":"p1","request":{"subtype":"can_use_tool"}}'
        say '{"type":"control_request","request_id":"","request":{}}'
        say '{"type":"control_response","response":{"subtype":"success","request_id":"77","response":{"behavior":"allow"}}}'
        say '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":-1}}'
        ;;
    codex)
        say '{"id":"p1","method":"item/commandExecution/requestApproval","params":{}}'
        say '{"id":99,"result":{"decision":"accept"}}'
        say '{"method":"turn/completed","params":{"threadId":"other","turn":{"id":"u","status":"completed"}}}'
        say '{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"v","status":"completed"}}}'
        ;;
    esac
    take_back 12345
    finish
    finish
    ;;
asks)
    repeat 1000 ask
    finish
    ;;
takes_back)
    repeat 1000 ask_and_take_back
    finish
    ;;
esac
