/** Environment variables that the client commands read if an option is absent. None of them is a setting of a server. */
export const clientVariables = {
  context: 'TAPROOT_CONTEXT',
  server: 'TAPROOT_SERVER',
  token: 'TAPROOT_TOKEN',
  tokenFile: 'TAPROOT_TOKEN_FILE',
  identity: 'TAPROOT_IDENTITY',
  caFile: 'TAPROOT_CA_FILE',
} as const
