"""OpenAI's client for Python through the gateway: nothing changes but the address.

    hinge gateway --local http://127.0.0.1:8081/v1 --remote https://llm.example/v1 --task options:yes,no
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=unused python examples/chat.py
"""

from openai import OpenAI

client = OpenAI()  # reads the two variables
raw = client.chat.completions.with_raw_response.create(  # without with_raw_response, the answer alone
    model="any", messages=[{"role": "user", "content": "Is water wet? Answer yes or no."}], max_tokens=3
)
print(raw.parse().choices[0].message.content, "by", raw.headers["hinge-answered-by"])
print(raw.headers["hinge-reason"])
