// Sends requests to the Service, and checks its certificate for the host name that clients use.
import { readFileSync } from 'node:fs'
import { request as overHttp } from 'node:http'
import { request as overHttps } from 'node:https'
import { isIP } from 'node:net'
import { checkServerIdentity } from 'node:tls'

const { SERVICE, HOST } = process.env
const tls = { servername: isIP(HOST) === 0 ? HOST : '', checkServerIdentity: (_, certificate) => checkServerIdentity(HOST, certificate) }
const call = (path, { method, headers, body } = {}) =>
  new Promise((resolve, reject) => {
    const options = { method, headers, ...tls, signal: AbortSignal.timeout(20_000) }
    const asked = (SERVICE.startsWith('https:') ? overHttps : overHttp)(SERVICE + path, options, async (answer) => {
      const text = (await answer.toArray()).join('')
      resolve({ status: answer.statusCode, headers: answer.headers, text })
    })
    asked.on('error', reject).end(body)
  })
const check = (what, isTrue, found) => {
  console.log(`${isTrue ? 'ok  ' : 'FAIL'} ${what}${isTrue ? '' : `: ${found}`}`)
  if (!isTrue) process.exitCode = 1
}
