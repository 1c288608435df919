from nextapp.cli import main

main()
