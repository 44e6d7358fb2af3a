import { deviceGrant } from '../../../../src/auth/oidc/discovery-document.ts'
import type { OtherParts, OtherRequest } from './other-request.ts'
import type { Corpus, Field, LoginCorpus } from '../protocol.ts'
import type { Random } from '../random.ts'
import { escaped } from './rest-request.ts'

type Make = (login: LoginCorpus, random: Random, corpus: Corpus) => OtherParts

function apiClient(route: string, forms: OtherRequest['forms'], make: Make): OtherRequest {
  const [verb = ''] = route.split(' ')
  return { name: route, route, port: 'api', verb, forms, make: (corpus, random) => make(corpus.login, random, corpus) }
}

const page: OtherRequest['forms'] = ['page', 'status']

/** Includes each field with a probability of one half. */
function maybe(random: Random, ...fields: readonly Field[]): Field[] {
  return fields.filter(() => random.chance(0.5))
}

function picked(name: string, values: readonly string[], random: Random): Field[] {
  return values.length === 0 ? [] : [[name, random.pick(values)]]
}

/** Returns the fields that choose where the tokens of a sign-in go. */
function endOf(login: LoginCorpus, random: Random): Field[] {
  return random.pick([
    picked('redirect', ['http://localhost:39999/', 'http://127.0.0.1:39999/a?b=c'], random),
    picked('headless_code', login.headlessCodes, random),
    picked('user_code', login.userCodes, random),
  ])
}

function document(route: string): OtherRequest {
  return apiClient(route, ['status'], () => ({ path: route.replace('GET ', '') }))
}

/** Sign-ins by browsers and devices, and published documents about tokens. */
export const loginEndpoints: readonly OtherRequest[] = [
  apiClient('GET /oauth', page, (login, random, { uids }) => ({
    path: '/oauth',
    query: [
      ['idp_id', login.provider],
      ...endOf(login, random),
      ...maybe(random, ['audience', login.baseUrl], ['scope', login.group], ['create_refresh_token', 'true'], ['exit', 'redirect']),
      ...(random.chance(0.2) ? maybe(random, ['identity', random.pick(uids)], ['invite', 'A'.repeat(40)], ['skip_registration', '1']) : []),
    ],
  })),
  apiClient('POST /oauth/confirm', page, ({ confirmations }, random) => {
    const { fields, cookie } = random.pick(confirmations)
    return { path: '/oauth/confirm', form: [...fields, ['answer', random.pick(['yes', 'no'])]], headers: [['Cookie', cookie]] }
  }),
  {
    ...apiClient('GET /oauth/callback/*provider', page, ({ callbacks, provider }, random, { uids }) => {
      const { fields, cookie } = random.pick(callbacks)
      const path = `/oauth/callback/${escaped(random.chance(0.9) ? provider : random.pick(uids))}`
      return { path, query: [...fields], headers: [['Cookie', cookie]] }
    }),
    mutating: true,
  },
  apiClient('GET /orgcheck', ['status'], () => ({ path: '/orgcheck', query: [['name', 'example.com']] })),
  apiClient('POST /oauth/device_authorization', ['oauth'], ({ baseUrl, group }, random) => ({
    path: '/oauth/device_authorization',
    form: [['client_id', baseUrl], ...maybe(random, ['audience', baseUrl], ['scope', `openid offline_access ${group}`])],
  })),
  {
    ...apiClient('POST /oauth/token', ['oauth'], ({ baseUrl, deviceCodes }, random) => ({
      path: '/oauth/token',
      form: [['grant_type', deviceGrant], ...picked('device_code', deviceCodes, random), ['client_id', baseUrl]],
    })),
    name: 'POST /oauth/token for a device',
  },
  {
    ...apiClient('POST /oauth/token', ['oauth'], ({ baseUrl, group, refreshTokens }, random) => ({
      path: '/oauth/token',
      form: [['grant_type', 'refresh_token'], ...picked('refresh_token', refreshTokens, random), ...maybe(random, ['client_id', baseUrl], ['scope', group])],
    })),
    name: 'POST /oauth/token for a refresh token',
  },
  apiClient('POST /oauth/revoke', ['oauth'], ({ refreshTokens }, random, { tokens }) => ({
    path: '/oauth/revoke',
    form: [...picked('token', [...refreshTokens, ...tokens], random), ...maybe(random, ['token_type_hint', random.pick(['refresh_token', 'access_token'])])],
  })),
  apiClient('GET /oauth/device', page, ({ userCodes }, random) => ({ path: '/oauth/device', query: picked('user_code', userCodes, random) })),
  document('GET /.well-known/openid-configuration'),
  document('GET /.well-known/jwks.json'),
  document('GET /'),
  document('GET /docs'),
  document('GET /docs/v1'),
  document('GET /docs/start.js'),
  document('GET /docs/swagger-ui.css'),
  document('GET /docs/swagger-ui-bundle.js'),
  document('GET /openapi.json'),
  document('GET /openapi.yaml'),
  document('GET /openapi-v1.json'),
  document('GET /openapi-v1.yaml'),
  document('GET /proto.binpb'),
  document('GET /dev/issuer/.well-known/openid-configuration'),
  document('GET /dev/issuer/jwks.json'),
]
