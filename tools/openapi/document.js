// OpenAPI 3.1 documents of the REST API, from the schema. Version 2 has one, and so have the methods of version 1 that call those of version 2.
import { readFileSync } from 'node:fs'
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf'
import { FieldMaskSchema, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { getComments } from '@bufbuild/protoplugin'
import { methods } from '../../src/base/schema/schema.ts'
import { fieldAccess } from '../../src/base/schema/field-behavior.ts'
import { presenceOf, Schemas } from './schemas.js'

/** Returns the comments of messages, fields, services and methods in one line, by full name. */
function commentsOf(image) {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, image))
  const parts = [...registry].flatMap((type) => {
    if (type.kind === 'message') return [[type.typeName, type], ...type.fields.map((field) => [`${type.typeName}.${field.name}`, field])]
    if (type.kind === 'service') return [[type.typeName, type], ...type.methods.map((method) => [`${type.typeName}.${method.name}`, method])]
    return []
  })
  const texts = parts.map(([name, type]) => [name, getComments(type).leading?.trim().replaceAll(/\s+/g, ' ') ?? ''])
  return new Map(texts.filter(([, text]) => text !== ''))
}

/** The examples of operations of version 2, which test/conformance/walk/examples.test.ts sends to a server and records. */
const recorded = JSON.parse(readFileSync(new URL('examples.json', import.meta.url), 'utf8'))

const camelCase = (snake) => snake.replaceAll(/_([a-z])/g, (_, letter) => letter.toUpperCase())
const lowerFirst = (text) => text.charAt(0).toLowerCase() + text.slice(1)

/** Domains whose messages are of version 1 in both documents. */
const signInDomains = new Set(['auth', 'oidc'])
const isSignIn = ({ domain }) => signInDomains.has(domain)
const isMapped = (row) => row.service.includes('.v1.') && !isSignIn(row)

/** Returns the name of a service in tags and operations. */
function shortName(service) {
  return service
    .split('.')
    .at(-1)
    .replace(/Service$/, '')
}

/** Names of operations whose methods have the names of verbs. */
const signInOperations = { Validate: 'validateToken', Register: 'registerPerson', Delete: 'deletePerson', Exchange: 'exchangeToken' }

/** Returns the name of the operation in clients: `createGroup`; `groupsCreate` for version 1, whose methods have the names of verbs. */
function operationIdOf(row) {
  if (!isMapped(row)) return signInOperations[isSignIn(row) ? row.rpc : ''] ?? lowerFirst(row.rpc)
  const service = lowerFirst(shortName(row.service))
  return service === lowerFirst(row.rpc) ? service : `${service}${row.rpc}`
}

/** The variables of a path: the field, and whether it takes slashes. */
function variablesOf(template) {
  return [...template.matchAll(/\{([a-z_.]+)(?:=(\*\*|\*))?\}/g)].map(([text, path]) => ({ text, path: path.split('.') }))
}

/** Returns a field of a message by its path. */
function fieldAt(message, [first, ...rest]) {
  const field = message.fields.find(({ name }) => name === first)
  return rest.length === 0 ? field : fieldAt(field.message, rest)
}

/** Headers that methods accept, by name of the parameter. */
const headers = {
  IdempotencyKey: {
    ...{ name: 'Idempotency-Key', in: 'header', description: 'Makes a create safe to repeat for 24 hours.' },
    schema: { type: 'string', minLength: 1, maxLength: 255 },
  },
  IfMatch: { name: 'If-Match', in: 'header', description: 'The etag that the record must still have, in quotes.', schema: { type: 'string' } },
  ValidateOnly: {
    ...{ name: 'validateOnly', in: 'query', description: 'True for a dry run: everything except the commit.' },
    ...{ allowEmptyValue: true, schema: { type: 'boolean' } },
  },
}

function headersFor({ verb, mutation }) {
  const names = [
    ...(verb === 'create' ? ['IdempotencyKey'] : []),
    ...(['update', 'delete'].includes(verb) ? ['IfMatch'] : []),
    ...(mutation ? ['ValidateOnly'] : []),
  ]
  return names.map((name) => ({ $ref: `#/components/parameters/${name}` }))
}

/** Messages that only gRPC can carry in a list of a query. */
const grpcOnly = ['RepoTagReference']

/** Returns the schema of a message in the text of a parameter. */
function textForm(field) {
  if (field.message.name === 'ImageRef') return { type: 'string', description: '`<uid of a repo>`, or `<uid of a repo>:<tag>,<tag>`' }
  throw new Error(`${field} has no form as a parameter: add it to tools/openapi/document.js`)
}

/** Returns true if an empty text is no instance of a schema: a number, a time, an enum. As a parameter it counts as absent. */
function excludesEmpty({ type, format, pattern }) {
  if (type === 'array') return false
  return type !== 'string' || format !== undefined || (pattern !== undefined && !pattern.startsWith('^$|'))
}

/** Returns the query parameters of a message, nested ones with dots. */
function queryOf(schemas, message, { without, prefix = '' }) {
  return message.fields.flatMap((field) => {
    if (without.includes(field.name) || fieldAccess(field).outputOnly) return []
    const name = `${prefix}${field.jsonName}`
    const isPlain = field.message === undefined || field.message.typeName.startsWith('google.protobuf.')
    if (field.fieldKind === 'map' || grpcOnly.includes(field.message?.name)) return []
    if (!isPlain && field.fieldKind === 'message') return queryOf(schemas, field.message, { without: [], prefix: `${name}.` })
    const { description, ...schema } = isPlain
      ? schemas.field(field, 'request')
      : { type: 'array', items: textForm(field), ...presenceOf(field), description: schemas.comment(`${field.parent.typeName}.${field.name}`) }
    const required = fieldAccess(field).required && prefix === ''
    const presence = required ? { required } : prefix !== 'uidp.' && excludesEmpty(schema) ? { allowEmptyValue: true } : {}
    return [{ name, in: 'query', ...(description === undefined ? {} : { description }), ...presence, schema }]
  })
}

/** Returns the request body, if the route has one. */
function bodyOf(schemas, row, { binding, variables }) {
  if (binding.body === '') return undefined
  const form = row.verb === 'update' ? 'update' : 'request'
  const named = variables.filter(({ path }) => path.length === 1).map(({ path: [name] }) => name)
  const schema =
    binding.body === '*'
      ? schemas.object(row.input, { form, fields: row.input.fields.filter(({ name }) => !named.includes(name)) })
      : schemas.bare(fieldAt(row.input, [binding.body]), form)
  return { required: binding.body !== '*' || (schema.required ?? []).length > 0, content: { 'application/json': { schema } } }
}

function accessOf({ scope, capabilities, operators }) {
  if (operators) return 'For operators.'
  if (scope === 'public') return 'Needs no token.'
  if (scope === 'external') return 'Its credential is not an access token of the platform.'
  return capabilities.length === 0 ? 'For every signed-in caller.' : `Needs ${capabilities.map((name) => `\`${name}\``).join(', ')}.`
}

/** Answers that are not the message in JSON, by the name of the message. */
const otherAnswers = {
  'taproot.events.v2.PullEventsResponse': {
    'application/cloudevents-batch+json': { schema: { type: 'array', description: 'A batch of CloudEvents 1.0.', items: { type: 'object' } } },
  },
}

function answersOf(schemas, row, { isStreamed }) {
  // Version 1 answers an empty object.
  const isEmpty = row.output.typeName === 'google.protobuf.Empty' && !row.service.includes('.v1.')
  const json = otherAnswers[row.output.typeName] ?? { 'application/json': { schema: schemas.of(row.output, 'answer') } }
  const events = isStreamed ? { 'text/event-stream': { schema: { type: 'string' } } } : {}
  return {
    200: { description: isEmpty ? 'Done. The body is empty.' : 'The answer.', ...(isEmpty ? {} : { content: { ...json, ...events } }) },
    '4XX': { $ref: '#/components/responses/Error' },
    '5XX': { $ref: '#/components/responses/Error' },
  }
}

/** Adds the example of an operation to its parameters, its request body and its answer. */
function withExample(operation, { path = {}, query = {}, body, answer }) {
  const values = { path, query }
  const parameters = operation.parameters.map((parameter) => {
    const example = values[parameter.in]?.[parameter.name]
    return example === undefined ? parameter : { ...parameter, example: parameter.schema.type === 'array' ? [example] : example }
  })
  const { requestBody, responses } = operation
  const answered = responses[200].content['application/json']
  return {
    ...operation,
    parameters,
    ...(body !== undefined && {
      requestBody: { ...requestBody, content: { 'application/json': { ...requestBody.content['application/json'], example: body } } },
    }),
    responses: { ...responses, 200: { ...responses[200], content: { ...responses[200].content, 'application/json': { ...answered, example: answer } } } },
  }
}

function operationOf(schemas, row, { binding, variables, isStreamed, operationId }) {
  const { service, rpc, input } = row
  const parts = variables.filter(({ text }) => binding.template.includes(text))
  const inPath = parts.map(({ path, name, own }) => {
    const { description = own === name ? undefined : `The ${own}: its uid.`, ...schema } = schemas.field(fieldAt(input, path), 'request')
    return { name, in: 'path', required: true, ...(description === undefined ? {} : { description }), schema }
  })
  const without = [...parts.map(({ path: [first] }) => first), binding.body]
  const masks = input.fields
    .filter((field) => field.message === FieldMaskSchema || field.message?.typeName === 'google.protobuf.FieldMask')
    .map(({ name }) => name)
  const query = binding.body === '*' ? [] : queryOf(schemas, input, { without: binding.body === '' ? [...without, ...masks] : without })
  const body = bodyOf(schemas, row, { binding, variables: parts })
  const text = schemas.comment(`${service}.${rpc}`)
  return {
    tags: [shortName(service)],
    operationId,
    summary: (/^.*?[.](?= |$)/.exec(text)?.[0] ?? text).replace(/[.]$/, ''),
    description: `${text}\n\n${accessOf(row)}`.trim(),
    'x-grpc-method': `${service}/${rpc}`,
    ...(row.scope === 'public' ? { security: row.optionalToken ? [{}, { token: [] }] : [] } : {}),
    parameters: [...inPath, ...query, ...headersFor(row)],
    ...(body === undefined ? {} : { requestBody: body }),
    responses: answersOf(schemas, row, { isStreamed }),
  }
}

/** Returns the routes of the methods, each with the names of its path variables. Routes with the same form of path have the same names. */
function routesOf(rows) {
  const namesOfPath = new Map()
  const routes = rows.flatMap((row) =>
    row.http.map((binding, at) => {
      const form = binding.template.replaceAll(/\{[^}]*\}/g, '{}')
      const variables = variablesOf(binding.template).map(({ text, path }) => ({ text, path, own: camelCase(path.at(-1)) }))
      const known = namesOfPath.get(form)
      // Reads name the record; creates name its parent. One name serves both.
      if (known === undefined || row.verb === 'get')
        namesOfPath.set(
          form,
          variables.map(({ own }) => own),
        )
      const suffix = at === 0 ? '' : `By${binding.verb.charAt(0)}${binding.verb.slice(1).toLowerCase()}`
      return { row, binding, form, variables, operationId: `${operationIdOf(row)}${suffix}` }
    }),
  )
  return routes.map((route) => ({ ...route, variables: route.variables.map((variable, at) => ({ ...variable, name: namesOfPath.get(route.form)[at] })) }))
}

/** Routes that take no parent: root groups are created there. */
function withRoots(routes) {
  return routes.flatMap((route) => {
    const { row, binding } = route
    if (row.verb !== 'create' || row.scope !== 'unscoped') return [route]
    const template = binding.template.replace(/\/\{[^}]*\}$/, '')
    return [
      route,
      { ...route, binding: { ...binding, template }, variables: [], operationId: route.operationId.replace(/^create/, 'createRoot'), without: ['parent'] },
    ]
  })
}

function pathsOf(schemas, rows, examples) {
  const paths = {}
  const streamed = new Set(rows.filter(({ streaming }) => streaming).flatMap(({ http }) => http.map(({ verb, template }) => `${verb} ${template}`)))
  for (const route of withRoots(routesOf(rows.filter(({ streaming }) => !streaming)))) {
    const { row, binding, variables } = route
    let path = binding.template
    for (const { text, name } of variables) path = path.replace(text, `{${name}}`)
    const operation = operationOf(schemas, row, { ...route, isStreamed: streamed.has(`${binding.verb} ${binding.template}`) })
    if (route.without !== undefined) operation.parameters = operation.parameters.filter(({ name }) => !route.without.includes(name))
    const example = examples[route.operationId]
    paths[path] = { ...paths[path], [binding.verb.toLowerCase()]: example === undefined ? operation : withExample(operation, example) }
  }
  return Object.fromEntries(Object.entries(paths).sort(([one], [other]) => (one < other ? -1 : 1)))
}

const errorSchema = {
  type: 'object',
  description: 'An error. docs/errors.md lists the codes and reasons.',
  required: ['code', 'message', 'details'],
  properties: {
    code: { type: 'integer', description: 'The code of gRPC, such as 5 for NOT_FOUND.' },
    message: { type: 'string' },
    details: { type: 'array', items: { $ref: '#/components/schemas/ErrorDetail' } },
  },
}

const errorDetailSchema = {
  type: 'object',
  description: 'A message of google.rpc, such as an ErrorInfo. Only an ErrorInfo has a reason.',
  required: ['@type'],
  properties: {
    '@type': { type: 'string' },
    reason: { type: 'string', description: 'Stable name of what went wrong, such as ETAG_MISMATCH.' },
    domain: { type: 'string' },
    metadata: { type: 'object', additionalProperties: { type: 'string' } },
  },
  additionalProperties: true,
}

function documentOf(comments, { title, about, rows, version, examples = {} }) {
  const schemas = new Schemas(comments)
  const paths = pathsOf(schemas, rows, examples)
  const services = [...new Set(rows.map(({ service }) => service))].sort()
  const tags = services.map((service) => ({ name: shortName(service), description: comments.get(service) ?? '' }))
  return {
    openapi: '3.1.0',
    info: { title, version, description: about, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: '/' }],
    security: [{ token: [] }],
    tags,
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer', description: 'An access token, from `/sts/exchange` or a sign-in.' } },
      parameters: Object.fromEntries(
        Object.entries(headers).filter(([name]) => rows.some((row) => headersFor(row).some(({ $ref }) => $ref.endsWith(`/${name}`)))),
      ),
      responses: { Error: { description: 'An error.', content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } } } },
      schemas: { Error: errorSchema, ErrorDetail: errorDetailSchema, ...schemas.all() },
    },
  }
}

/** Returns the documents by the path of their file, without its ending. `image` is what `buf build` wrote; `version` is that of the product. */
export function openApiDocuments(image, version) {
  const comments = commentsOf(image)
  const about = 'Groups, identities, roles and role bindings, repos and tags, advisories, library artifacts, and events of container registries.'
  const paths = 'Requests also take `path:demo/web/ci`, a path of names, where they take the uid of a group, repo, role or identity provider.'
  return new Map([
    [
      'src/server/openapi/v2',
      documentOf(comments, { title: 'Taproot', about: `${about} ${paths}`, version, rows: methods.filter((row) => !isMapped(row)), examples: recorded }),
    ],
    [
      'src/server/openapi/v1',
      documentOf(comments, { title: 'Taproot, version 1', about: `${about} For clients that know version 1.`, version, rows: methods.filter(isMapped) }),
    ],
  ])
}
