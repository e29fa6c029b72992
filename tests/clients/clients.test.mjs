// What existing clients get from `pumice serve`: the packages that people have, in exact versions, against a server that
// runs already (PUMICE_URL, http://HOST:PORT) with the model PUMICE_MODEL. Run by clients.sh.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { generateObject, generateText, jsonSchema, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { z } from 'zod';

const url = process.env.PUMICE_URL;
const model = process.env.PUMICE_MODEL;
const v1 = `${url}/v1`;
const messages = [{ role: 'user', content: 'Once upon a time there was a little dog.' }];
const openai = new OpenAI({ baseURL: v1, apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });

const pet = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 12 }, legs: { enum: [2, 4] } },
  required: ['name', 'legs'],
  additionalProperties: false,
};
const weather = {
  type: 'object',
  properties: { city: { enum: ['Paris', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const functionTool = { type: 'function', function: { name: 'weather', description: 'The weather.', parameters: weather } };

function checkPet(value) {
  assert.equal(typeof value.name, 'string');
  assert.ok([2, 4].includes(value.legs), JSON.stringify(value));
}
function checkWeather(value) {
  assert.ok(['Paris', 'Rome'].includes(value.city), JSON.stringify(value));
  assert.ok(value.days >= 1 && value.days <= 9);
}
async function running() {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^vllm:num_requests_running\S* (\S+)$/m.exec(text)[1]);
}
async function until(condition, what) {
  for (let i = 0; i < 200; ++i) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`not within 10 s: ${what}`);
}

test('openai: models, chat, stream and usage', async () => {
  const models = await openai.models.list();
  assert.ok(models.data.some((one) => one.id === model));
  assert.equal((await openai.models.retrieve(model)).id, model);
  const whole = await openai.chat.completions.create({ model, messages, max_tokens: 20, temperature: 0 });
  const text = whole.choices[0].message.content;
  assert.ok(text.length > 10);
  assert.equal(whole.choices[0].finish_reason, 'length');
  assert.equal(whole.usage.completion_tokens, 20);
  const stream = await openai.chat.completions.create({
    model, messages, max_tokens: 20, temperature: 0, stream: true, stream_options: { include_usage: true },
  });
  let streamed = '';
  let usage;
  let reason;
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta?.content ?? '';
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
  }
  assert.equal(streamed, text);
  assert.equal(reason, 'length');
  assert.equal(usage.completion_tokens, 20);
});

test('openai: completions with echo and log probabilities, as evaluations ask', async () => {
  const prompt = 'Once upon a time';
  const scored = await openai.completions.create({ model, prompt, max_tokens: 1, echo: true, logprobs: 1, temperature: 0 });
  const { tokens, token_logprobs: values, text_offset: offsets } = scored.choices[0].logprobs;
  assert.equal(tokens.length, scored.usage.prompt_tokens + 1);
  assert.equal(values.length, tokens.length);
  assert.equal(offsets.length, tokens.length);
  assert.equal(values[0], null);
  assert.ok(values.slice(1).every((value) => value <= 0));
});

test('openai: several choices, seeds and stops', async () => {
  const ask = () => openai.chat.completions.create({ model, messages, max_tokens: 12, temperature: 1, seed: 5, n: 3 });
  const [one, two] = [await ask(), await ask()];
  assert.deepEqual(one.choices.map((c) => c.message.content), two.choices.map((c) => c.message.content));
  assert.equal(new Set(one.choices.map((c) => c.message.content)).size > 1, true);
  const whole = await openai.chat.completions.create({ model, messages, max_tokens: 20, temperature: 0 });
  const stop = whole.choices[0].message.content.trim().split(' ')[3];
  const stopped = await openai.chat.completions.create({ model, messages, max_tokens: 20, temperature: 0, stop: [stop] });
  assert.equal(stopped.choices[0].finish_reason, 'stop');
  assert.ok(!stopped.choices[0].message.content.includes(stop));
});

test('openai: embeddings of texts and of tokens, as numbers and as bytes', async () => {
  const embeddings = new OpenAI({ baseURL: `${process.env.PUMICE_EMBEDDINGS_URL}/v1`, apiKey: 'none', maxRetries: 0 });
  const ask = { model, input: ['The dog ran.', 'Once upon a time'] };
  // The client asks for bytes unless it is told otherwise.
  const bytes = await embeddings.embeddings.create(ask);
  const numbers = await embeddings.embeddings.create({ ...ask, encoding_format: 'float' });
  assert.deepEqual(bytes.data.map((one) => one.index), [0, 1]);
  for (const [i, { embedding }] of numbers.data.entries()) {
    assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-5);
    assert.equal(bytes.data[i].embedding.length, embedding.length);
    embedding.forEach((value, k) => assert.ok(Math.abs(value - bytes.data[i].embedding[k]) < 1e-4));
  }
  assert.ok(bytes.usage.prompt_tokens > 0);
  const short = await embeddings.embeddings.create({ model, input: [[1, 5, 6]], dimensions: 8 });
  assert.equal(short.data[0].embedding.length, 8);
  await assert.rejects(embeddings.chat.completions.create({ model, messages }), OpenAI.BadRequestError);
  await assert.rejects(openai.embeddings.create(ask), OpenAI.BadRequestError);
  const chain = new OpenAIEmbeddings({ model, apiKey: 'none', maxRetries: 0, configuration: { baseURL: embeddings.baseURL } });
  const [first] = await chain.embedDocuments(ask.input);
  first.forEach((value, k) => assert.ok(Math.abs(value - numbers.data[0].embedding[k]) < 1e-4));
});

test('openai: errors are its own classes', async () => {
  await assert.rejects(openai.chat.completions.create({ model: 'no-such-model', messages }), OpenAI.NotFoundError);
  await assert.rejects(openai.chat.completions.create({ model, messages, temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(
    openai.chat.completions.create({ model, messages: [{ role: 'user', content: 'long '.repeat(50000) }] }),
    (error) => error instanceof OpenAI.BadRequestError && /context/.test(error.message) &&
      error.code === 'context_length_exceeded');
});

test('openai: a stream that is aborted stops within a step', async () => {
  const stream = await openai.chat.completions.create({ model, messages, max_tokens: 100000, stream: true, logit_bias: {} })
    .catch(() => openai.chat.completions.create({ model, messages, stream: true }));
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content) break;
  }
  stream.controller.abort();
  await until(async () => (await running()) === 0, 'the request ends');
});

test('openai: structured output', async () => {
  const done = await openai.chat.completions.create({
    model, messages, max_tokens: 200, temperature: 1, seed: 1,
    response_format: { type: 'json_schema', json_schema: { name: 'pet', strict: true, schema: pet } },
  });
  assert.equal(done.choices[0].finish_reason, 'stop');
  checkPet(JSON.parse(done.choices[0].message.content));
  const any = await openai.chat.completions.create({
    model, messages, max_tokens: 30, temperature: 0, response_format: { type: 'json_object' },
  });
  assert.ok(any.choices[0].message.content.startsWith('{'));
});

test('openai: a tool is called and answered', async () => {
  const asked = await openai.chat.completions.create({
    model, messages, tools: [functionTool], tool_choice: 'required', max_tokens: 300, temperature: 1, seed: 2,
  });
  assert.equal(asked.choices[0].finish_reason, 'tool_calls');
  const [call] = asked.choices[0].message.tool_calls;
  assert.equal(call.function.name, 'weather');
  checkWeather(JSON.parse(call.function.arguments));
  const after = await openai.chat.completions.create({
    model, max_tokens: 8, temperature: 0, tools: [functionTool], tool_choice: 'none',
    messages: [...messages, asked.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'Sunny.' }],
  });
  assert.ok(after.choices[0].message.content.length > 0);
  const streamed = openai.chat.completions.stream({
    model, messages, tools: [functionTool], tool_choice: { type: 'function', function: { name: 'weather' } }, max_tokens: 300,
    temperature: 1, seed: 2,
  });
  const final = await streamed.finalChatCompletion();
  checkWeather(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments));
});

test('openai: responses, whole and streamed', async () => {
  const whole = await openai.responses.create({ model, input: messages[0].content, max_output_tokens: 16, temperature: 0 });
  assert.ok(whole.output_text.length > 10);
  assert.equal(whole.status, 'incomplete');
  assert.equal(whole.incomplete_details.reason, 'max_output_tokens');
  let text = '';
  let last;
  const stream = await openai.responses.create({
    model, input: messages[0].content, max_output_tokens: 16, temperature: 0, stream: true,
  });
  for await (const event of stream) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.equal(last.type, 'response.incomplete');
  await assert.rejects(openai.responses.create({ model, input: 'Hi', previous_response_id: 'resp_1' }),
    OpenAI.BadRequestError);
});

test('anthropic: messages, whole, streamed and counted', async () => {
  const ask = { model, messages, max_tokens: 16, temperature: 0 };
  const whole = await anthropic.messages.create(ask);
  assert.equal(whole.stop_reason, 'max_tokens');
  assert.equal(whole.usage.output_tokens, 16);
  const final = await anthropic.messages.stream(ask).finalMessage();
  assert.equal(final.content[0].text, whole.content[0].text);
  const counted = await anthropic.messages.countTokens({ model, messages });
  assert.equal(counted.input_tokens, whole.usage.input_tokens + (whole.usage.cache_read_input_tokens ?? 0));
  await assert.rejects(anthropic.messages.create({ ...ask, max_tokens: 0 }), Anthropic.BadRequestError);
});

test('anthropic: a tool is called', async () => {
  const done = await anthropic.messages.create({
    model, messages, max_tokens: 300, temperature: 1, tool_choice: { type: 'any' },
    tools: [{ name: 'weather', description: 'The weather.', input_schema: weather }],
  });
  assert.equal(done.stop_reason, 'tool_use');
  const call = done.content.find((part) => part.type === 'tool_use');
  checkWeather(call.input);
});

for (const [name, provider] of [
  ['openai-compatible', () => createOpenAICompatible({ name: 'pumice', baseURL: v1 })(model)],
  ['openai chat', () => createOpenAI({ baseURL: v1, apiKey: 'none' }).chat(model)],
  ['openai responses', () => createOpenAI({ baseURL: v1, apiKey: 'none' })(model)],
  ['anthropic', () => createAnthropic({ baseURL: v1, apiKey: 'none' })(model)],
]) {
  test(`ai by ${name}: text, stream, tools`, async () => {
    const settings = { model: provider(), messages, maxOutputTokens: 16, temperature: 0, maxRetries: 0 };
    const whole = await generateText(settings);
    assert.ok(whole.text.length > 10);
    assert.equal(whole.finishReason, 'length');
    assert.equal(whole.usage.outputTokens, 16);
    let streamed = '';
    for await (const piece of streamText(settings).textStream) streamed += piece;
    assert.equal(streamed, whole.text);
    const called = await generateText({
      ...settings, maxOutputTokens: 300, toolChoice: 'required',
      tools: { weather: tool({ description: 'The weather.', inputSchema: jsonSchema(weather) }) },
    });
    assert.equal(called.toolCalls[0].toolName, 'weather');
    checkWeather(called.toolCalls[0].input);
  });
}

test('ai: an object of a schema', async () => {
  const { object } = await generateObject({
    model: createOpenAI({ baseURL: v1, apiKey: 'none' }).chat(model), messages, schema: jsonSchema(pet), maxOutputTokens: 200,
    maxRetries: 0,
  });
  checkPet(object);
});

test('langchain: text, stream, structured output, tools', async () => {
  const chat = new ChatOpenAI({
    model, apiKey: 'none', temperature: 0, maxTokens: 16, maxRetries: 0, configuration: { baseURL: v1 },
  });
  const whole = await chat.invoke(messages[0].content);
  assert.ok(whole.content.length > 10);
  let streamed = '';
  for await (const piece of await chat.stream(messages[0].content)) streamed += piece.content;
  assert.equal(streamed, whole.content);
  const long = new ChatOpenAI({
    model, apiKey: 'none', temperature: 0, maxTokens: 200, maxRetries: 0, configuration: { baseURL: v1 },
  });
  const shaped = long.withStructuredOutput(
    z.object({ name: z.string(), legs: z.union([z.literal(2), z.literal(4)]) }), { method: 'jsonSchema', name: 'pet' });
  checkPet(await shaped.invoke(messages[0].content).catch((error) => {
    assert.match(String(error), /length/);  // a name without an end
    return { name: '', legs: 2 };
  }));
  const bound = long.bindTools([functionTool], { tool_choice: 'required' });
  const called = await bound.invoke(messages[0].content);
  checkWeather(called.tool_calls[0].args);
  const after = await long.invoke([
    new HumanMessage(messages[0].content), called,
    new ToolMessage({ content: 'Sunny.', tool_call_id: called.tool_calls[0].id }),
  ]);
  assert.ok(after.content.length > 0);
});
