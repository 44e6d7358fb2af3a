#!/usr/bin/env node
// Docker and other registry clients find it on the PATH by this name.
import { launch } from './launch.js'

launch('docker-credential-taproot.ts', 'docker-credential-taproot')
