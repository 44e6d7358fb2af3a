// Receives events of one group: npm install cloudevents jose; ISSUER=https://platform.example.com GROUP=<uid> node receiver.mjs
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { HTTP } from 'cloudevents'
import { createRemoteJWKSet, jwtVerify } from 'jose'

// The base URL of Taproot, the group of the subscription, and the port to listen on. Sinks are https: set the files of a certificate and
// its key, or let a proxy terminate TLS.
const { ISSUER: issuer, GROUP: group, PORT: port = '8080', CERT: cert, KEY: key } = process.env
const maxBytes = 4 * 1024 * 1024

const discovery = await (await fetch(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`)).json()
if (discovery.issuer !== issuer) throw new Error(`the issuer calls itself ${discovery.issuer}`)
const keys = createRemoteJWKSet(new URL(discovery.jwks_uri))

/** What to do with an event. An event may come twice: remember the ids that were handled. */
async function handle(event) {
  console.log(JSON.stringify({ id: event.id, type: event.type, subject: event.subject, group: event.group, data: event.data }))
}

class Refusal extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

/** Throws a Refusal unless Taproot sent these bytes, to this group, within the last hour. */
async function verify({ authorization = '' }, body) {
  const token = /^Bearer (.+)$/i.exec(authorization)?.[1]
  if (token === undefined) throw new Refusal(401, 'no token')
  const expected = { issuer, audience: 'customer', subject: `webhook:${group}`, algorithms: ['ES256'], requiredClaims: ['exp'] }
  const { payload } = await jwtVerify(token, keys, expected).catch((error) => {
    // Without the keys no token can be judged. Taproot sends the event again after a 500.
    throw /^ERR_JW[ST]_|^ERR_JWKS_NO|^ERR_JOSE_ALG/.test(error.code) ? new Refusal(403, error.message) : error
  })
  const digest = `sha256:${createHash('sha256').update(body).digest('hex')}`
  if (payload.webhook?.digest !== digest) throw new Refusal(403, 'the token is for another body')
}

async function bodyOf(request) {
  const chunks = []
  let bytes = 0
  for await (const chunk of request) {
    bytes += chunk.length
    if (bytes > maxBytes) throw new Refusal(413, 'the body is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function eventOf(headers, body) {
  try {
    const event = HTTP.toEvent({ headers, body: body.toString() })
    event.validate()
    return event
  } catch (error) {
    throw new Refusal(400, `no CloudEvent: ${error.message}`)
  }
}

async function receive(request, response) {
  try {
    const body = await bodyOf(request)
    const event = eventOf(request.headers, body)
    await verify(request.headers, body)
    await handle(event)
    response.writeHead(200).end()
  } catch (error) {
    response.writeHead(error.status ?? 500, { 'content-type': 'text/plain' }).end(`${error.message}\n`)
  }
}

const server = cert === undefined ? createServer(receive) : createTlsServer({ cert: readFileSync(cert), key: readFileSync(key) }, receive)
server.listen(Number(port), () => console.error(`listening on port ${server.address().port}`))
