// What the vendor's own SDK makes of a fault that TestVendorSDKOnFaults has set: it prints the error's class, status and message.
const { Daytona } = require('@daytonaio/sdk')

new Daytona({ apiKey: process.env.DAYTONA_API_KEY, apiUrl: process.env.DAYTONA_API_URL }).get('box').then(
  () => process.exit(1),
  error => {
    console.log(error.constructor.name, error.statusCode, error.message)
    process.exit(0)
  })
