#!/bin/sh
# curl through the gateway; -i shows the headers that say who answered, and why.
#
#   hinge gateway --local http://127.0.0.1:8081/v1 --remote https://llm.example/v1 --task options:yes,no
#   OPENAI_BASE_URL=http://127.0.0.1:8080/v1 sh examples/chat.sh
curl -sS -i "$OPENAI_BASE_URL/chat/completions" -H 'Content-Type: application/json' -d '{
  "model": "any", "max_tokens": 3,
  "messages": [{"role": "user", "content": "Is water wet? Answer yes or no."}]
}'
