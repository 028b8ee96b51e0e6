// OpenAI's client for JavaScript through the gateway: nothing changes but the address.
//
//   hinge gateway --local http://127.0.0.1:8081/v1 --remote https://llm.example/v1 --task options:yes,no
//   npm install openai
//   OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=unused node examples/chat.mjs
import OpenAI from "openai";

const client = new OpenAI(); // reads the two variables
const { data, response } = await client.chat.completions
  .create({ model: "any", messages: [{ role: "user", content: "Is water wet? Answer yes or no." }], max_tokens: 3 })
  .withResponse(); // without it, the answer alone
console.log(data.choices[0].message.content, "by", response.headers.get("hinge-answered-by"));
console.log(response.headers.get("hinge-reason"));
